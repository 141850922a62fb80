"""Time several ways to do the same work: in turns, repeated, and compared by their minima.

Machines are shared and noisy. Noise only ever adds time, so the minimum is the steadiest figure; taking turns spreads
what noise there is over all of them.
"""

import functools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from arelu_meta.console.tables import text_table

OPERATORS = 12  # rows of a profile
_PROFILES: ContextVar[list[str] | None] = ContextVar("profiles", default=None)


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the smallest and the median of the repeats."""

    name: str
    minimum: float
    median: float
    repeats: int


def interleaved(work: Mapping[str, Callable[[], object]], *, repeats: int = 7, calls: int = 1) -> list[Timing]:
    """Time functions in turns.

    Args:
        work: functions by name; the first is ours, and profiled where `profiling` is on
        repeats: turns, after one call each to warm up
        calls: calls in one turn

    Returns:
        A timing for each function, in the same order.
    """
    for function in work.values():
        function()
    if (profiles := _PROFILES.get()) is not None:
        profiles.append(_profile(*next(iter(work.items()))))
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, function in work.items():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            seconds[name].append((time.perf_counter() - start) / calls)
    return [Timing(name, min(values), statistics.median(values), repeats) for name, values in seconds.items()]


def load_warning() -> str:
    """Say so when other processes keep the cores busy, for then the figures are not to be trusted; else nothing."""
    if not hasattr(os, "getloadavg"):  # Windows
        return ""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= 0.5 * cores:
        return ""
    return f"the machine is busy: load {load:.1f} on {cores} cores; repeat when it is idle"


@contextmanager
def profiling(wanted: bool) -> Iterator[list[str]]:
    """Where wanted, `interleaved` leaves here a table of operators for each thing of ours that it times."""
    tables: list[str] = []
    token = _PROFILES.set(tables if wanted else None)
    try:
        yield tables
    finally:
        _PROFILES.reset(token)


def _profile(name: str, function: Callable[[], object]) -> str:
    """Call a function once under torch's profiler, and list the operators that take most of the time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as watched:
        function()
    events = sorted(watched.key_averages(), key=lambda event: -event.self_cpu_time_total)
    whole = sum(event.self_cpu_time_total for event in events) or 1
    rows = [
        (
            event.key,
            f"{event.self_cpu_time_total / 1000:.3f}",
            f"{100 * event.self_cpu_time_total / whole:.0f} %",
            str(event.count),
        )
        for event in events[:OPERATORS]
    ]
    return f"profile of {name}, one call\n{text_table(('operator', 'ms', 'share', 'calls'), rows)}"


@dataclass
class MethodClock:
    """Seconds inside the methods of a class and their calls; a method that calls another one is counted once."""

    seconds: float = 0.0
    calls: int = 0
    _depth: int = 0

    @contextmanager
    def timing(self, cls: type, names: Sequence[str]) -> Iterator[None]:
        """Time these methods of the class, whoever calls them, until the end of the block."""
        originals = {name: getattr(cls, name) for name in names}
        for name, original in originals.items():
            setattr(cls, name, self._timed(original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(cls, name, original)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.perf_counter() - start
                    self.calls += 1

        return timed
