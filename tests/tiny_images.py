"""Image sets of a few hundred small images, named in specs as `tests.tiny_images:...`."""

from dataclasses import replace

import torch

from arelu_meta import data
from arelu_meta.data.imageset import ImageSet

DIGITS, NEGATIVE, DISCS = (f"tests.tiny_images:{name}" for name in ("digits", "negative", "discs"))


def digits() -> ImageSet:
    """The first 20 images of each digit of scikit-learn, 1x28x28."""
    images = data.load("digits")
    numbers = torch.cat([torch.nonzero(images.labels == label).squeeze(1)[:20] for label in range(10)])
    return images.subset(numbers.sort().values, "tiny_digits")


def negative() -> ImageSet:
    """The same digits black on white, with subsets of their own: every fifth image tests."""
    images, numbers = digits(), torch.arange(200)
    subsets = {"train": numbers[numbers % 5 != 0], "test": numbers[numbers % 5 == 0]}
    return replace(images, name="negative", images=255 - images.images, subsets=subsets)


def discs() -> ImageSet:
    """Six patients of four slices, 1x16x16: a bright disc at a place of the patient's own, and its mask."""
    draw = torch.Generator().manual_seed(0)
    patients = torch.arange(6).repeat_interleave(4)
    row, column = (torch.randint(4, 12, (6,), generator=draw)[patients].view(-1, 1, 1) for _ in range(2))
    side = torch.arange(16)
    masks = (
        (((side.view(16, 1) - row) ** 2 + (side - column) ** 2) <= 9).to(torch.uint8).unsqueeze(1)
    )  # (24, 1, 16, 16)
    noise = torch.randint(60, (24, 1, 16, 16), generator=draw)
    return ImageSet(
        name="discs",
        images=(180 * masks + noise).to(torch.uint8),
        labels=torch.zeros(24, dtype=torch.int64),
        class_names=("disc",),
        masks=masks,
        groups=patients,
        group_names=tuple(f"patient_{number}" for number in range(6)),
    )


def labels_beyond() -> ImageSet:
    """The digits with names for the first five alone."""
    return replace(digits(), class_names=tuple("01234"))


def masks_of_another_size() -> ImageSet:
    """The discs, whose masks have lost a row."""
    images = discs()
    return replace(images, masks=images.masks[:, :, 1:])


def without_patients() -> ImageSet:
    """The discs, nobody's."""
    return replace(discs(), groups=None, group_names=())


def few() -> ImageSet:
    """Three images of noise of each of two classes."""
    images = torch.randint(256, (6, 3, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return ImageSet("few", images, torch.arange(6) % 2, ("a", "b"))
