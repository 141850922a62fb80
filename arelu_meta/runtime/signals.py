"""Hold interruptions back while something is written that must not be left half-done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def hold_signals() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back, in a `with` block or as a decorator; a second one goes through at once.

    An exception in the middle of a transaction leaves the database locked for this process, and the run RUNNING.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread only
        return
    held: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def hold(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        if held and callable(handler):
            handler(number, frame)
        held.append(number)

    replaced = [number for number, handler in handlers.items() if callable(handler)]
    for number in replaced:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, handlers[number])
        if held:
            signal.raise_signal(held[0])
