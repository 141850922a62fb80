import os
import time

import pytest

from arelu_meta.benchmarks.timing import MethodClock, interleaved, load_warning


def test_takes_turns_after_a_warm_up():
    """One call each to warm up, then twice over: three of a, three of b."""
    calls: list[str] = []
    timings = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=2, calls=3)
    assert "".join(calls) == "ab" + "aaabbb" * 2
    assert [(timing.name, timing.repeats) for timing in timings] == [("a", 2), ("b", 2)]


def test_minimum_and_median_per_call(monkeypatch: pytest.MonkeyPatch):
    """A clock that the work itself moves: 2, 8, 5 seconds for two calls each, so 1, 4, 2.5 per call."""
    now, steps = [0.0], iter([0.0, 1.0, 1.0, 4.0, 4.0, 2.5, 2.5])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def work() -> None:
        now[0] += next(steps)

    (timing,) = interleaved({"work": work}, repeats=3, calls=2)
    assert (timing.minimum, timing.median) == (1.0, 2.5)


def test_median_of_an_even_count_lies_between_the_middle_two(monkeypatch: pytest.MonkeyPatch):
    """1, 2, 4 and 9 seconds: (2 + 4) / 2 = 3."""
    now, steps = [0.0], iter([0.0, 9.0, 1.0, 4.0, 2.0])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def work() -> None:
        now[0] += next(steps)

    (timing,) = interleaved({"work": work}, repeats=4)
    assert (timing.minimum, timing.median) == (1.0, 3.0)


@pytest.mark.parametrize(("load", "warned"), [(0.0, False), (2.0, False), (2.1, True)])
def test_a_busy_machine_is_named(monkeypatch: pytest.MonkeyPatch, load: float, warned: bool):
    """Four cores: busy above a load of 2."""
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 9.0, 9.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert load_warning() == (f"the machine is busy: load {load} on 4 cores; repeat when it is idle" if warned else "")


def test_without_a_load_average_nothing_is_said(monkeypatch: pytest.MonkeyPatch):
    """As on Windows."""
    monkeypatch.delattr(os, "getloadavg", raising=False)
    assert load_warning() == ""


class Sleeper:
    def outer(self):
        return self.inner() + 1

    def inner(self):
        return 1


def test_nested_calls_count_once(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))  # every look at the clock takes a second
    clock = MethodClock()
    with clock.timing(Sleeper, ["outer", "inner"]):
        assert Sleeper().outer() == 2
        assert Sleeper().inner() == 1
    assert clock.calls == 2
    assert clock.seconds == 3  # outer: start, inner's start, end; inner: start, end


def test_the_class_is_as_before_even_after_an_error():
    before = Sleeper.outer
    with pytest.raises(ZeroDivisionError), MethodClock().timing(Sleeper, ["outer"]):
        raise ZeroDivisionError
    assert Sleeper.outer is before
