"""Interruptions are held back while something is written, and not lost."""

import signal
import threading

import pytest

from arelu_meta.runtime.signals import hold_signals


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
