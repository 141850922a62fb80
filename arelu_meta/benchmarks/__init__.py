"""Benchmarks by name: ours and the peers on identical work, in one run, as ratios. Listing them imports no torch."""

from arelu_meta.registry import Entry, Registry

_REGISTRY = Registry[Entry]("benchmark")
_REGISTRY.add(
    Entry(
        "activation", "arelu_meta.benchmarks.activation:bench_activation", "AReLU beside ReLU, PReLU and the authors'"
    ),
    Entry(
        "maml", "arelu_meta.benchmarks.maml:bench_maml", "outer steps and whole iterations beside learn2learn, higher"
    ),
    Entry(
        "compare", "arelu_meta.benchmarks.commands:bench_commands", "whole commands: seeds, ranks, start-up, tracking"
    ),
    Entry("memory", "arelu_meta.benchmarks.memory:bench_memory", "peak memory of an outer step"),
    Entry(
        "growth",
        "arelu_meta.benchmarks.growth:bench_growth",
        "time and memory against ways, shots, steps, tasks, sizes",
    ),
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
