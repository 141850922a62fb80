"""Where the time of our own way goes: torch's profiler around one call of what a benchmark measures."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from arelu_meta.console.tables import text_table

MOST = 12
_TABLES: ContextVar[list[str] | None] = ContextVar("profiles", default=None)


@contextmanager
def profiling(wanted: bool) -> Iterator[list[str]]:
    """Where wanted, benchmarks leave a table of operators here for each thing of ours they measure."""
    tables: list[str] = []
    token = _TABLES.set(tables if wanted else None)
    try:
        yield tables
    finally:
        _TABLES.reset(token)


def profiled(name: str, function: Callable[[], object]) -> None:
    """Call a function once more under the profiler, where a profile is asked for."""
    tables = _TABLES.get()
    if tables is None:
        return
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
        for event in events[:MOST]
    ]
    tables.append(f"profile of {name}, one call\n{text_table(('operator', 'ms', 'share', 'calls'), rows)}")
