import pytest

from arelu_meta.benchmarks.clock import Clock


class Sleeper:
    def outer(self):
        return self.inner() + 1

    def inner(self):
        return 1


def test_nested_calls_count_once(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))  # every look at the clock takes a second
    clock = Clock()
    with clock.watching(Sleeper, ["outer", "inner"]):
        assert Sleeper().outer() == 2
        assert Sleeper().inner() == 1
    assert clock.calls == 2
    assert clock.seconds == 3  # outer: start, inner's start, end; inner: start, end


def test_the_class_is_as_before_even_after_an_error():
    before = Sleeper.outer
    with pytest.raises(ZeroDivisionError), Clock().watching(Sleeper, ["outer"]):
        raise ZeroDivisionError
    assert Sleeper.outer is before
