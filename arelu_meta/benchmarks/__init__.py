"""Benchmarks by name: ours and the peers on identical work, in one run, as ratios. Listing them imports no torch.

A benchmark is a function of the data root (None: the default one) that yields a `BenchReport` for each of its tables.
"""

from arelu_meta.registry import Entry, Registry

_REGISTRY = Registry[Entry]("benchmark")
_REGISTRY.add(
    *(
        Entry(name, f"arelu_meta.benchmarks.{module}:bench_{name}", summary)
        for name, module, summary in (
            ("activation", "activation", "AReLU beside others, alone and in whole training steps"),
            ("maml", "maml", "outer steps and whole iterations beside learn2learn, higher"),
            ("commands", "commands", "whole commands: start-up, several seeds, ranks, tracking"),
            ("waiting", "waiting", "a step on an idle and on a busy machine, by how threads wait"),
            ("memory", "memory", "peak memory of an outer step"),
            ("growth", "memory", "time and memory against ways, shots, steps, episodes, sizes"),
            ("sampler", "sampling", "draw 32 episodes, beside learn2learn's Taskset"),
            ("pipeline", "sampling", "crop and flip CIFAR, beside a ResNet-18 step"),
            ("folder", "folder", "first and second epoch over 20,000 photographs, beside ImageFolder and a DataLoader"),
            ("epoch", "training", "train on MNIST, beside a Dataset and a DataLoader"),
            ("epoch_cropped", "training", "train on SVHN cut to 28x28, beside a DataLoader that cuts every picture"),
        )
    )
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
