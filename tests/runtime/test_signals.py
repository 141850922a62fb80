"""Interruptions are held back while something is written, and not lost."""

import signal
import threading
import time

import pytest

from arelu_meta.runtime.signals import Terminated, ending_handled, hold_signals

pytestmark = pytest.mark.usefixtures("hangups_heard")


def test_an_interruption_comes_when_the_block_is_over():
    steps = []
    with pytest.raises(KeyboardInterrupt), hold_signals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        steps.append("written")
    assert steps == ["written"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_goes_through_at_once():
    steps = []
    with pytest.raises(KeyboardInterrupt), hold_signals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        steps.append("written")
    assert steps == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("briefly", [True, False])
def test_held_briefly_it_goes_through_what_hangs(monkeypatch: pytest.MonkeyPatch, briefly: bool):
    """Half a second here is a tenth; what hangs does so for a whole one."""
    monkeypatch.setattr("arelu_meta.runtime.signals.HELD_SECONDS", 0.1)
    start, steps = time.monotonic(), []
    with pytest.raises(KeyboardInterrupt), hold_signals(lambda: briefly):  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        time.sleep(1.0)
        steps.append("written")
    assert (steps == []) == briefly
    assert (time.monotonic() - start < 1.0) == briefly


def test_held_briefly_what_ends_in_time_is_not_interrupted_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("arelu_meta.runtime.signals.HELD_SECONDS", 0.1)
    with pytest.raises(KeyboardInterrupt), hold_signals(lambda: True):
        signal.raise_signal(signal.SIGINT)
    time.sleep(0.2)  # a second one would end the test here


def test_a_second_sigterm_does_not_break_what_the_first_waits_for():
    steps = []
    with pytest.raises(Terminated), ending_handled(), hold_signals():  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        steps.append("written")
    assert steps == ["written"]


def test_a_second_sigterm_does_not_disturb_the_ending_but_a_later_one_is_heard(monkeypatch: pytest.MonkeyPatch):
    """Sent to a process group and passed on by torchrun or a shell, it comes twice within milliseconds."""
    closed = []
    with ending_handled():
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        closed.append("run")
        monkeypatch.setattr("arelu_meta.runtime.signals.AGAIN_SECONDS", 0.0)
        with pytest.raises(Terminated) as later:
            signal.raise_signal(signal.SIGHUP)
    assert closed == ["run"]
    assert later.value.number == signal.SIGHUP


def test_under_nohup_a_lost_terminal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_handled():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_as_a_decorator_it_holds_during_each_call():
    @hold_signals()
    def held() -> bool:
        return signal.getsignal(signal.SIGINT) is not signal.default_int_handler

    assert held()
    assert held()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_nothing_is_held():
    seen = []

    def write() -> None:
        with hold_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
