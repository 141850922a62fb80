"""Signals that end a process: handled as an interruption, and held back while something must not be left half-done."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# Sent by schedulers, and when a terminal is closed or its connection lost; Windows has no SIGHUP.
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
AGAIN_SECONDS = 3.0  # between two that count as two
HELD_SECONDS = 0.5  # that Ctrl-C is held back at most where it is held briefly
_last = [-math.inf]  # when the last one came


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, handled like Ctrl-C: the run is marked KILLED before the process ends."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.number = number


def terminate(number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM and SIGHUP; one that follows at once changes nothing: the process is closing its run.

    Sent to a group of processes and passed on by one of them, a signal comes twice. A later one is handled again: the
    first may have met Python inside a destructor, where exceptions are lost.
    """
    before, _last[0] = _last[0], time.monotonic()
    if _last[0] - before > AGAIN_SECONDS:
        raise Terminated(number)


@contextmanager
def ending_handled() -> Iterator[None]:
    """Handle SIGTERM, and SIGHUP unless it is ignored, as under nohup; then put back what there was."""
    before, _last[0] = {number: signal.getsignal(number) for number in ENDING}, -math.inf
    for number, handler in before.items():
        if number == signal.SIGTERM or handler is not signal.SIG_IGN:
            signal.signal(number, terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def hold_signals(briefly: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back, in a `with` block or as a decorator; a second Ctrl-C goes through at once.

    An exception in the middle of a transaction leaves the database locked for this process, and the run RUNNING.

    Args:
        briefly: asked at Ctrl-C: whether it is to go through after half a second, as where a server may hang
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread only
        return
    held: list[int] = []
    over = threading.Event()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}

    def hold(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        if held and number == signal.SIGINT and callable(handler):  # of a person, who does not want to wait
            handler(number, frame)
        held.append(number)
        if held == [signal.SIGINT] and briefly():
            threading.Thread(target=_interrupt_again, args=(threading.get_ident(), over), daemon=True).start()

    replaced = [number for number, handler in handlers.items() if callable(handler)]
    for number in replaced:
        signal.signal(number, hold)
    try:
        yield
    finally:
        over.set()
        for number in replaced:
            signal.signal(number, handlers[number])
        if held:
            signal.raise_signal(held[0])


def _interrupt_again(thread: int, over: threading.Event) -> None:
    """Send the main thread a second Ctrl-C, unless what holds the first is over in time."""
    if not over.wait(HELD_SECONDS):
        signal.pthread_kill(thread, signal.SIGINT)
