"""Time several ways to do the same work: interleaved, repeated, and compared by their minima.

Machines are shared and noisy. Noise only ever adds time, so the minimum is the steadiest figure; taking turns spreads
what noise there is over all of them.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from arelu_meta.benchmarks.profile import profiled


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the smallest and the median of the repeats."""

    name: str
    minimum: float
    median: float
    repeats: int


def interleaved(work: Mapping[str, Callable[[], object]], *, repeats: int = 7, calls: int = 1) -> list[Timing]:
    """Call each once to warm up, then in turns, `calls` at a time, `repeats` times over; the first is ours."""
    for function in work.values():
        function()
    profiled(*next(iter(work.items())))
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, function in work.items():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            seconds[name].append((time.perf_counter() - start) / calls)
    return [Timing(name, min(values), sorted(values)[len(values) // 2], repeats) for name, values in seconds.items()]


def busy() -> str:
    """Say so when other processes keep the cores busy, for then the figures are not to be trusted; else nothing."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return (
        f"the machine is busy: load {load:.1f} on {cores} cores; repeat when it is idle" if load > 0.5 * cores else ""
    )
