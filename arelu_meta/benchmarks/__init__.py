"""Benchmarks by name: ours and the peers on identical work, in one run, as ratios. Listing them imports no torch."""

from arelu_meta.registry import Entry, Registry

_REGISTRY = Registry[Entry]("benchmark")
_REGISTRY.add(
    Entry("sampler", "arelu_meta.benchmarks.sampler:bench_sampler", "draw 32 episodes, beside learn2learn's Taskset"),
    Entry("epoch", "arelu_meta.benchmarks.epoch:bench_epoch", "train on MNIST, beside a Dataset and a DataLoader"),
    Entry("pipeline", "arelu_meta.benchmarks.pipeline:bench_pipeline", "crop and flip CIFAR, beside a ResNet-18 step"),
    Entry("finetune", "arelu_meta.benchmarks.finetune:bench_finetune", "fine-tune on SVHN, beside a DataLoader"),
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
