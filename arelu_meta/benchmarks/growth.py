"""How the time and memory of an outer step grow with what a user may turn up, as fitted exponents."""

import math
from collections.abc import Sequence
from dataclasses import replace

from arelu_meta.benchmarks.memory import peak_of_step
from arelu_meta.benchmarks.meta_step import Setting
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import interleaved

BASE = Setting(backbone="conv4", activation="arelu", tasks=8, inner_steps=2, filters=16)
AXES: dict[str, Sequence[int]] = {
    "ways": (2, 5, 10),
    "shots": (1, 3, 9),
    "inner_steps": (1, 3, 9),
    "tasks": (4, 12, 36),
    "image": (16, 32, 64),
    "filters": (8, 16, 32),
}


def bench_growth(root: str | None = None) -> BenchReport:
    """Vary one size at a time."""
    del root  # needs no images
    rows = []
    for axis, sizes in AXES.items():
        settings = [replace(BASE, **{axis: size}) for size in sizes]  # type: ignore[arg-type]
        timings = interleaved({str(s): setting.step() for s, setting in zip(sizes, settings, strict=True)}, repeats=5)
        seconds = [timing.minimum for timing in timings]
        peaks = [float(peak_of_step(setting)[0]) for setting in settings]
        note = f"time ~ {axis}^{exponent(sizes, seconds):.2f}, memory ~ {axis}^{exponent(sizes, peaks):.2f}"
        rows += [
            Row(f"{axis} {size}", taken, taken / seconds[0], f"{peak / 2**20:.0f} MB" + (f"; {note}" if last else ""))
            for size, taken, peak, last in zip(sizes, seconds, peaks, _marks_last(sizes), strict=True)
        ]
    sizes_of_base = f"{BASE.tasks} tasks, {BASE.filters} filters, {BASE.inner_steps} steps"
    title = f"growth of an outer step, {BASE.backbone}, {sizes_of_base}"
    return BenchReport(title, rows, of="smallest")


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit values ~ sizes ** exponent by least squares of the logarithms.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(max(value, 1e-12)) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def _marks_last(sizes: Sequence[int]) -> list[bool]:
    return [size == sizes[-1] for size in sizes]
