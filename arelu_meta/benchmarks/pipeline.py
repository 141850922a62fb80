"""The CIFAR input pipeline (crop, flip, normalise, batch) beside the ResNet-18 training step that it feeds."""

import torch
import torch.nn.functional as F
from torchvision import transforms

from arelu_meta import activations, backbones, data
from arelu_meta.benchmarks.plain_loop import Pictures
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.data.augment import crop_flip
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import published
from arelu_meta.errors import InputError

BATCH = 128


def bench_pipeline(root: str | None = None, batch: int = BATCH, repeats: int = 3) -> BenchReport:
    """Compare on CIFAR-10 where it is at hand, on the bundled street digits, of the same shape, otherwise."""
    train = _train(root)
    batches = Batches(train, batch, torch.Generator().manual_seed(0), augment=crop_flip)
    numbers = next(iter(batches.orders()))
    theirs = Pictures(train, transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip())
    torch.manual_seed(0)
    network = backbones.build(
        "resnet18",
        activation=activations.factory("relu"),
        channels=3,
        image_size=(32, 32),
        classes=len(train.class_names),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    x, y = batches.gather(numbers)

    def one_by_one() -> torch.Tensor:
        return torch.stack([theirs[number][0] for number in numbers.tolist()])

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

    if one_by_one().shape != x.shape:
        raise InputError("the two do not do the same work: their batches differ in shape")
    ours, peer = interleaved({"ours": lambda: batches.gather(numbers), "theirs": one_by_one}, repeats=7, calls=5)
    (trained,) = interleaved({"step": step}, repeats=repeats)
    rows = [
        Row("arelu_meta", ours.minimum, 1.0, f"{100 * ours.minimum / trained.minimum:.2f} % of the step"),
        Row(
            "torchvision transforms",
            peer.minimum,
            peer.minimum / ours.minimum,
            f"{100 * peer.minimum / trained.minimum:.2f} % of the step, in one process",
        ),
        Row("training step, resnet18", trained.minimum, trained.minimum / ours.minimum, "forward, backward, sgd"),
    ]
    return BenchReport(f"{len(x)} images of {train.name}: crop, flip, normalise, batch", rows)


def _train(root: str | None) -> ImageSet:
    try:
        return published(data.load("cifar10", root=root)).train
    except InputError:
        return published(data.load("street")).train
