"""Peak memory of an outer step of MAML, and how its time and memory grow with what a user may turn up."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from arelu_meta.benchmarks.meta_step import Setting, installed_engines
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.errors import InputError
from arelu_meta.runtime import hardware

CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
BASE = Setting(backbone="conv4", activation="arelu", meta_batch=8, inner_steps=2, filters=16)
AXES: dict[str, Sequence[int]] = {
    "ways": (2, 5, 10),
    "shots": (1, 3, 9),
    "inner_steps": (1, 3, 9),
    "meta_batch": (4, 12, 36),
    "image": (16, 32, 64),
    "filters": (8, 16, 32),
}


def bench_memory(_root: str | None = None) -> Iterator[BenchReport]:
    """Compare the engines, and ours recorded and in chunks of four episodes."""
    setting = Setting()
    peaks = {
        "arelu_meta": peak_of_step(setting),
        "arelu_meta, recorded": peak_of_step(setting, record=True),
        "arelu_meta, chunks of 4": peak_of_step(setting, chunk=4),
        **{engine: peak_of_step(setting, engine) for engine in installed_engines() if engine != "func"},
    }
    ours, _ = peaks["arelu_meta"]
    rows = [
        Row(name, seconds, peak / ours, f"{peak / 2**20:.0f} MB above the start")
        for name, (peak, seconds) in peaks.items()
    ]
    title = "peak memory, outer step of mnist_conv, 5-way 1-shot, 32 episodes, 5 inner steps"
    yield BenchReport(title, rows, of="memory")


def bench_growth(_root: str | None = None) -> Iterator[BenchReport]:
    """Vary one size at a time; the exponents of time and memory are fitted."""
    rows = []
    for axis, sizes in AXES.items():
        settings = [replace(BASE, **{axis: size}) for size in sizes]  # type: ignore[arg-type]
        timings = interleaved({str(s): setting.step() for s, setting in zip(sizes, settings, strict=True)}, repeats=5)
        seconds = [timing.minimum for timing in timings]
        peaks = [float(peak_of_step(setting)[0]) for setting in settings]
        notes = [f"{peak / 2**20:.0f} MB" for peak in peaks]
        notes[-1] += f"; time ~ {axis}^{exponent(sizes, seconds):.2f}, memory ~ {axis}^{exponent(sizes, peaks):.2f}"
        rows += [
            Row(f"{axis} {size}", taken, taken / seconds[0], note)
            for size, taken, note in zip(sizes, seconds, notes, strict=True)
        ]
    base = f"{BASE.meta_batch} episodes, {BASE.filters} filters, {BASE.inner_steps} steps"
    yield BenchReport(f"growth of an outer step, {BASE.backbone}, {base}", rows, of="smallest")


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit values ~ sizes ** exponent by least squares of the logarithms.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(max(value, 1e-12)) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def peak_of_step(setting: Setting, engine: str = "func", *, chunk: int = 0, record: bool = False) -> tuple[int, float]:
    """Measure one outer step in a fresh process.

    Returns:
        Bytes that the step adds to the process at its peak, and its seconds; with `record`, those of a repeated step.
    """
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (setting, engine, chunk, record))


def _measure(setting: Setting, engine: str, chunk: int, record: bool) -> tuple[int, float]:
    small = Setting(backbone=setting.backbone, meta_batch=1, filters=setting.filters, image=setting.image)
    small.step(engine)()  # libraries are loaded and buffers of a fixed size made
    step = setting.step(engine, chunk=chunk, record=record)
    before = peak_memory(restart=True)
    if record:
        step()  # is recorded
        peak_memory(restart=True)
    start = time.perf_counter()
    step()
    return peak_memory() - before, time.perf_counter() - start


def peak_memory(*, restart: bool = False) -> int:
    """Peak memory of this process in bytes; counted anew from now on with `restart`, where that can be done."""
    if restart and CLEAR.exists():
        CLEAR.write_text("5")
    if not STATUS.exists():
        if not (most := hardware.peak_memory()):
            raise InputError("this system does not say how much memory a process holds; run it on Linux or macOS")
        return most
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
