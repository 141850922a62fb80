"""Fine-tuning throughput: `mnist_conv` on street numbers cut to 28x28, ours beside the DataLoader loop."""

import torch
from torchvision import transforms

from arelu_meta import data
from arelu_meta.benchmarks.epoch import BATCH, CHECKED, IMAGES, beside
from arelu_meta.benchmarks.plain_loop import WORKERS, check_same_weights, loader_like
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.data.fit import fit_images
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import published
from arelu_meta.errors import InputError

SIDE = 28


def bench_finetune(root: str | None = None, images: int = IMAGES, repeats: int = 3) -> BenchReport:
    """Compare on SVHN where it is at hand, on the bundled street digits otherwise.

    Ours cuts the images once, when they are read; the plain loop cuts every picture when it is drawn.
    """
    whole = _train(root, images)
    cut = fit_images(whole, image_size=SIDE, resize="crop")
    first = torch.arange(min(CHECKED, len(cut)))
    few = whole.subset(first)
    networks = beside(
        cut.subset(first),
        repeats=0,
        loader=lambda batches: loader_like(batches, transforms.CenterCrop(SIDE), images=few),
    )[1]
    check_same_weights(networks[0], networks[1:])
    (plain, fast, theirs), _ = beside(
        cut, repeats=repeats, loader=lambda batches: loader_like(batches, transforms.CenterCrop(SIDE), images=whole)
    )
    rows = [
        Row("arelu_meta --channels-last --fused", fast, 1.0, f"{len(cut) / fast:.0f} images/s"),
        Row("arelu_meta", plain, plain / fast, f"{len(cut) / plain:.0f} images/s"),
        Row(f"DataLoader, {WORKERS} workers", theirs, theirs / fast, f"{len(cut) / theirs:.0f} images/s"),
    ]
    return BenchReport(f"{len(cut)} images of {cut.name} cut to {SIDE}x{SIDE}, batches of {BATCH}, mnist_conv", rows)


def _train(root: str | None, count: int) -> ImageSet:
    try:
        train = published(data.load("svhn", root=root)).train
    except InputError:
        train = published(data.load("street")).train
    return train.subset(torch.arange(min(count, len(train))))
