"""Training `mnist_conv` on MNIST: ours beside a torchvision-like Dataset and a DataLoader with two workers."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from arelu_meta import activations, backbones, data
from arelu_meta.benchmarks.plain_loop import WORKERS, check_same_weights, loader_like, plain_epoch, train_on
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import by_image, published
from arelu_meta.errors import InputError
from arelu_meta.kinds.supervised_sections import OptimizationSection
from arelu_meta.training.speedups import PLAIN, Speedups
from arelu_meta.training.supervised import SupervisedTrainer

IMAGES, BATCH, CHECKED = 6_400, 128, 256
SETTINGS = OptimizationSection(batch_size=BATCH, epochs=1, lr=1e-4)
FAST = Speedups(channels_last=True, fused=True)


def bench_epoch(root: str | None = None, images: int = IMAGES, repeats: int = 3) -> BenchReport:
    """Compare on MNIST where it is at hand, on the bundled digits otherwise."""
    train = _train(root, images)
    small = train.subset(torch.arange(min(CHECKED, len(train))))
    networks = beside(small, repeats=0, loader=loader_like)[1]
    check_same_weights(networks[0], networks[1:])
    seconds, _ = beside(train, repeats=repeats, loader=loader_like)
    plain, fast, theirs = seconds
    rows = [
        Row("arelu_meta --channels-last --fused", fast, 1.0, f"{len(train) / fast:.0f} images/s"),
        Row("arelu_meta", plain, plain / fast, f"{len(train) / plain:.0f} images/s"),
        Row(f"DataLoader, {WORKERS} workers", theirs, theirs / fast, f"{len(train) / theirs:.0f} images/s"),
    ]
    return BenchReport(f"{len(train)} images of {train.name}, batches of {BATCH}, mnist_conv with relu, sgd", rows)


def beside(
    images: ImageSet, *, repeats: int, loader: Callable[[Batches], DataLoader]
) -> tuple[list[float], list[nn.Module]]:
    """Train ours plain, ours fast and the plain loop in turns, each from the same start; seconds and networks."""
    ours = [_trainer(images, speedups) for speedups in (PLAIN, FAST)]
    network, batches = _network(images), Batches(images, BATCH, torch.Generator().manual_seed(0))
    theirs = loader(batches)
    optimizer = torch.optim.SGD(network.parameters(), lr=SETTINGS.lr, momentum=SETTINGS.momentum)
    work: dict[str, Callable[[], Any]] = {
        "plain": lambda: train_on(ours[0]),
        "fast": lambda: train_on(ours[1]),
        "theirs": lambda: plain_epoch(network, theirs, optimizer),
    }
    if repeats == 0:
        for function in work.values():
            function()
        return [], [ours[0].network, ours[1].network, network]
    return [timing.minimum for timing in interleaved(work, repeats=repeats)], []


def _trainer(images: ImageSet, speedups: Speedups) -> SupervisedTrainer:
    batches = Batches(images, BATCH, torch.Generator().manual_seed(0))
    return SupervisedTrainer(_network(images), batches, SETTINGS, F.cross_entropy, speedups=speedups)


def _network(images: ImageSet) -> nn.Module:
    torch.manual_seed(0)
    return backbones.build(
        "mnist_conv",
        activation=activations.factory("relu"),
        channels=images.channels,
        image_size=images.image_size,
        classes=len(images.class_names),
    )


def _train(root: str | None, count: int) -> ImageSet:
    try:
        train = published(data.load("mnist", root=root)).train
    except InputError:
        train = by_image(data.load("digits")).train
    return train.subset(torch.arange(min(count, len(train))))
