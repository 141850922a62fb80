"""Training `mnist_conv` for an epoch: ours beside the loop of the tutorials, a DataLoader with workers."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

from arelu_meta import activations, backbones
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.sampling import BATCH, Pictures, local_or_bundled
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import fit_images
from arelu_meta.errors import RunError
from arelu_meta.training.supervised import SupervisedTrainer

IMAGES, CHECKED, WORKERS, SIDE = 6_400, 256, 2, 28
LR, MOMENTUM = 1e-4, 0.9
OURS: dict[str, dict[str, Any]] = {
    "arelu_meta": {},
    "arelu_meta --fused": {"fused": True},
    "arelu_meta --no-channels-last": {"channels_last": False},
}
"""What is measured of ours, by the flags that ask for it."""


def bench_epoch(root: str | None = None, images: int = IMAGES, repeats: int = 3) -> Iterator[BenchReport]:
    """Compare on MNIST where it is at hand, on the bundled digits otherwise."""
    train = local_or_bundled("mnist", "digits", root).train
    train = train.subset(torch.arange(min(images, len(train))))
    title = f"{len(train)} images of {train.name}, batches of {BATCH}, mnist_conv with relu, sgd"
    yield BenchReport(title, _rows(train, train, repeats))


def bench_epoch_cropped(root: str | None = None, images: int = IMAGES, repeats: int = 3) -> Iterator[BenchReport]:
    """Compare on SVHN where it is at hand, on the bundled street digits otherwise, cut to 28x28.

    Ours cuts the images once, when they are read; the plain loop cuts every picture when it is drawn.
    """
    whole = local_or_bundled("svhn", "street", root).train
    whole = whole.subset(torch.arange(min(images, len(whole))))
    cut = fit_images(whole, image_size=SIDE, resize="crop")
    title = f"{len(cut)} images of {cut.name} cut to {SIDE}x{SIDE}, batches of {BATCH}, mnist_conv"
    yield BenchReport(title, _rows(cut, whole, repeats, transforms.CenterCrop(SIDE)))


def _rows(ours: ImageSet, theirs: ImageSet, repeats: int, *transform: Callable[[Any], Any]) -> list[Row]:
    """Check on a few images that all ways end in the same weights, then time them on all."""
    few = torch.arange(min(CHECKED, len(ours)))
    work, networks = ways_to_train(ours.subset(few), theirs.subset(few), *transform)
    for function in work.values():
        function()
    check_same_weights(networks[0], networks[1:])
    work, _ = ways_to_train(ours, theirs, *transform)
    timings = interleaved(work, repeats=repeats)
    return [
        Row(one.name, one.minimum, one.minimum / timings[0].minimum, f"{len(ours) / one.minimum:.0f} images/s")
        for one in timings
    ]


def ways_to_train(
    ours: ImageSet, theirs: ImageSet, *transform: Callable[[Any], Any]
) -> tuple[dict[str, Callable[[], Any]], list[nn.Module]]:
    """Make ways to train one epoch, each from the same start: `OURS`, and a loop with a DataLoader.

    Args:
        ours: images as our loop takes them
        theirs: the same images as the DataLoader takes them, before `transform`
        transform: torchvision transforms of each picture

    Returns:
        The ways by name, each to be called for one more epoch; and their networks.
    """
    trainers = {
        name: SupervisedTrainer(
            _network(ours),
            Batches(ours, BATCH, torch.Generator().manual_seed(0)),
            F.cross_entropy,
            epochs=1,
            lr=LR,
            momentum=MOMENTUM,
            **options,
        )
        for name, options in OURS.items()
    }
    network = _network(ours)
    loader = loader_like(Batches(ours, BATCH, torch.Generator().manual_seed(0)), theirs, *transform)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)

    def epoch_of(trainer: SupervisedTrainer) -> None:
        trainer.done = 0  # the settings say one epoch; each call is one
        next(trainer.train())

    def plain_loop() -> None:
        network.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(x), y)
            loss.backward()
            optimizer.step()

    work: dict[str, Callable[[], Any]] = {name: partial(epoch_of, trainer) for name, trainer in trainers.items()}
    work[f"DataLoader, {WORKERS} workers"] = plain_loop
    return work, [*(trainer.network for trainer in trainers.values()), network]


def loader_like(batches: Batches, images: ImageSet, *transform: Callable[[Any], Any]) -> DataLoader:
    """Make a DataLoader that draws images in the order of our batches, its workers kept between epochs."""

    class SameOrder:
        def __iter__(self) -> Iterator[list[int]]:
            return (numbers.tolist() for numbers in batches.orders())

    return DataLoader(
        Pictures(images, *transform), batch_sampler=SameOrder(), num_workers=WORKERS, persistent_workers=True
    )


def check_same_weights(ours: nn.Module, theirs: Sequence[nn.Module]) -> None:
    """Make sure that the ways have done the same work: the same weights, to float32's rounding."""
    for other in theirs:
        for (name, one), two in zip(ours.state_dict().items(), other.state_dict().values(), strict=True):
            if not torch.allclose(one, two, rtol=1e-3, atol=1e-4):
                raise RunError(f"the ways differ in {name} by {(one - two).abs().max().item():.2g}: not the same work")


def _network(images: ImageSet) -> nn.Module:
    torch.manual_seed(0)
    return backbones.build(
        "mnist_conv",
        activation=activations.factory("relu"),
        channels=images.channels,
        image_size=images.image_size,
        classes=len(images.class_names),
    )
