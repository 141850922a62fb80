"""Drawing images to train on: episodes beside learn2learn's Taskset, augmented batches beside torchvision's transforms.

Published sets are used where their files are at hand; nothing is downloaded to be measured.
"""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision import transforms

from arelu_meta import activations, backbones, data
from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.data import splits
from arelu_meta.data.augment import crop_flip
from arelu_meta.data.batches import Batches
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.learn2learn_bridge import taskset
from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import peak_memory

EPISODES, WAYS, SHOTS, QUERIES = 32, 5, 1, 1
BATCH = 128


def local_or_bundled(name: str, bundled: str, root: str | None) -> splits.Split:
    """Read a published set where its files are at hand, a bundled one otherwise; never download."""
    if data.is_local(name, root=root):
        return splits.published(data.load(name, root=root))
    images = data.load(bundled)
    return splits.by_image(images) if bundled == "digits" else splits.published(images)


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures one by one, as torchvision's MNIST, SVHN and CIFAR give them: from an array to PIL, then transformed."""

    def __init__(self, images: ImageSet, *transform: Callable[[Any], Any]) -> None:
        self.arrays = images.tensor.permute(0, 2, 3, 1).squeeze(3).numpy()  # (N, H, W) or (N, H, W, C)
        self.labels = images.labels.tolist()
        steps = [*transform, transforms.ToTensor()]
        if images.mean:
            steps.append(transforms.Normalize(images.mean, images.std))
        self.transform = transforms.Compose(steps)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        """Give one picture and its label."""
        return self.transform(Image.fromarray(self.arrays[number])), self.labels[number]


def bench_sampler(root: str | None = None) -> Iterator[BenchReport]:
    """Draw 32 episodes of 5-way 1-shot, with their pixels: on MNIST where it is at hand, on the digits otherwise."""
    random = torch.Generator().manual_seed(0)
    local_or_bundled("mnist", "digits", root)  # once for the libraries that reading it loads, which are not the images'
    before = _resident_memory()
    split = local_or_bundled("mnist", "digits", root)
    sampler = EpisodeSampler(split.train, ways=WAYS, shots=SHOTS, queries=QUERIES)
    sampler.sample(EPISODES, random)
    held = (_resident_memory() - before) / 2**20
    stored = sum(images.images.nbytes for images in (split.train, split.validation, split.test)) / 2**20
    theirs = taskset(split.train, ways=WAYS, images_per_class=SHOTS + QUERIES)
    check_same_size(sampler, theirs.sample()[0])
    (alone,) = interleaved({"ours": lambda: sampler.sample(EPISODES, random)}, repeats=7, calls=50)
    in_turn, peer = interleaved(
        {
            "ours": lambda: sampler.sample(EPISODES, random),
            "learn2learn": lambda: [theirs.sample() for _ in range(EPISODES)],
        },
        repeats=5,
    )
    ours = min(alone.minimum, in_turn.minimum)
    note = f"holds {held:.0f} MB for {stored:.0f} MB of images" if before else ""
    rows = [
        Row("arelu_meta", ours, 1.0, note),
        Row("learn2learn Taskset", peer.minimum, peer.minimum / ours, "one image at a time"),
    ]
    yield BenchReport(f"{EPISODES} episodes, {WAYS}-way {SHOTS}-shot, {QUERIES} query, {split.train.name}", rows)


def check_same_size(sampler: EpisodeSampler, theirs: Tensor) -> None:
    """Make sure that both hand over as many pixels of the same type for an episode, before they are timed."""
    ours = sampler.sample(1, torch.Generator().manual_seed(0))
    pixels = ours.support_x.numel() + ours.query_x.numel()
    if theirs.numel() != pixels or theirs.dtype != ours.support_x.dtype:
        raise InputError(f"the two do not do the same work: {theirs.numel()} and {pixels} numbers per episode")


def _resident_memory() -> int:
    """Memory this process holds now, in bytes; elsewhere than on Linux, the most that it has held."""
    gc.collect()
    if not (statm := Path("/proc/self/statm")).exists():
        return peak_memory()
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bench_pipeline(root: str | None = None, batch: int = BATCH, repeats: int = 3) -> Iterator[BenchReport]:
    """Crop, flip, normalise and batch CIFAR-10 where it is at hand, else the bundled street digits of the same shape.

    The training step of a ResNet-18, which the batches feed, stands beside it.
    """
    train = local_or_bundled("cifar10", "street", root).train
    batches = Batches(train, batch, torch.Generator().manual_seed(0), augment=crop_flip)
    numbers = next(iter(batches.orders()))
    pictures = Pictures(train, transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip())
    x, y = batches.gather(numbers)

    def one_by_one() -> Tensor:
        return torch.stack([pictures[number][0] for number in numbers.tolist()])

    if one_by_one().shape != x.shape:
        raise InputError("the two do not do the same work: their batches differ in shape")
    ours, peer = interleaved({"ours": lambda: batches.gather(numbers), "theirs": one_by_one}, repeats=7, calls=5)
    (step,) = interleaved({"step": _resnet_step(x, y, len(train.class_names))}, repeats=repeats)
    share, peer_share = (f"{100 * timing.minimum / step.minimum:.2f} % of the step" for timing in (ours, peer))
    rows = [
        Row("arelu_meta", ours.minimum, 1.0, share),
        Row("torchvision transforms", peer.minimum, peer.minimum / ours.minimum, f"{peer_share}, in one process"),
        Row("training step, resnet18", step.minimum, step.minimum / ours.minimum, "forward, backward, sgd"),
    ]
    yield BenchReport(f"{len(x)} images of {train.name}: crop, flip, normalise, batch", rows)


def _resnet_step(x: Tensor, y: Tensor, classes: int) -> Callable[[], None]:
    torch.manual_seed(0)
    activation = activations.factory("relu")
    network = backbones.build("resnet18", activation=activation, channels=3, image_size=(32, 32), classes=classes)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

    return step
