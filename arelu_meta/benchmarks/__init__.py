"""Benchmarks by name: ours and the peers on identical work, in one run, as ratios. Listing them imports no torch."""

from arelu_meta.registry import Entry, Registry

_REGISTRY = Registry[Entry]("benchmark")
_REGISTRY.add(
    Entry("sampler", "arelu_meta.benchmarks.sampler:bench_sampler", "draw 32 episodes, beside learn2learn's Taskset"),
)


def names() -> list[str]:
    """Names of all benchmarks."""
    return _REGISTRY.names()


def entries() -> list[Entry]:
    """All benchmarks with their summaries."""
    return list(_REGISTRY)


def entry(name: str) -> Entry:
    """One benchmark's entry."""
    return _REGISTRY[name]
