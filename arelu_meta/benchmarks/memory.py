"""Peak memory of one outer step of MAML, each way in a process of its own."""

import resource
import time
from multiprocessing import get_context
from pathlib import Path

from arelu_meta.benchmarks.meta_step import Setting, engines_at_hand
from arelu_meta.benchmarks.report import BenchReport, Row

CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def bench_memory(root: str | None = None) -> BenchReport:
    """Compare the engines, and ours recorded and in chunks of four tasks."""
    del root  # needs no images
    setting = Setting()
    found = {
        "arelu_meta": peak_of_step(setting),
        "arelu_meta, recorded": peak_of_step(setting, repeat=True),
        "arelu_meta, chunks of 4": peak_of_step(setting, chunk=4),
        **{name: peak_of_step(setting, name) for name in engines_at_hand() if name != "func"},
    }
    ours, _ = found["arelu_meta"]
    rows = [
        Row(name, seconds, peak / ours, f"{peak / 2**20:.0f} MB above the start")
        for name, (peak, seconds) in found.items()
    ]
    title = "peak memory, outer step of mnist_conv, 5-way 1-shot, 32 tasks, 5 inner steps"
    return BenchReport(title, rows, of="memory")


def peak_of_step(setting: Setting, engine: str = "func", *, chunk: int = 0, repeat: bool = False) -> tuple[int, float]:
    """Bytes that a step adds to a fresh process at its peak, and its seconds; with `repeat`, of a repeated one."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (setting, engine, chunk, repeat))


def _measure(setting: Setting, engine: str, chunk: int, repeat: bool) -> tuple[int, float]:
    small = Setting(backbone=setting.backbone, tasks=1, filters=setting.filters, image=setting.image)
    small.step(engine)()  # libraries are loaded and buffers of a fixed size made
    step = setting.step(engine, chunk=chunk, repeat=repeat)
    before = _restarted_peak()
    if repeat:
        step()  # is recorded
        _restarted_peak()
    start = time.perf_counter()
    step()
    return _peak() - before, time.perf_counter() - start


def _restarted_peak() -> int:
    """Let the peak start anew from what is held now, where the system can; loading libraries had a peak of its own."""
    if CLEAR.exists():
        CLEAR.write_text("5")
    return _peak()


def _peak() -> int:
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
