"""What is learned from and what is held out: `shots` images of each class, drawn as often as asked, or all."""

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import Split, divide
from arelu_meta.errors import InputError
from arelu_meta.kinds.adapt.spec import SupportSection
from arelu_meta.pretrained.feature_cache import image_keys
from arelu_meta.seeding import generator


@dataclass(frozen=True, eq=False)
class Draw:
    """Numbers of the images that are learned from and of those held out, which may be none."""

    support: Tensor
    test: Tensor


@dataclass(frozen=True, eq=False)
class Draws:
    """The images that any draw uses, with the classes that have some, and the draws."""

    images: ImageSet
    draws: list[Draw]
    numbers: Tensor
    """of these images in the whole set"""
    source: str = ""
    """digest of the whole set"""

    @property
    def held_out(self) -> bool:
        """Whether images are held out; where none are, cross-validation has to do."""
        return bool(len(self.draws[0].test))

    def split(self) -> Split:
        """The first draw, as runs record what they learn from and are tested on."""
        first = self.draws[0]
        indices = {"train": first.support, "validation": first.test[:0], "test": first.test}
        split = divide(self.images, indices, held_out="images", may_lack=("validation", "test"))
        whole = {subset: self.numbers[some] for subset, some in indices.items()}
        return replace(split, indices=whole, source=self.source)


def draw_supports(images: ImageSet, section: SupportSection) -> Draws:
    """Divide images as a spec says.

    Args:
        images: the set. Where it has subsets `train` and `test`, the second is held out; else what is not drawn is.
        section: ways, shots, draws, images kept to test.

    Raises:
        InputError: fewer classes than `ways`, a class with fewer images than `shots` and one to test on, or classes
            that are tested alone.
    """
    source = images.digest
    images, learned, tested = _pools(images, section)
    learned, tested = _without_copies(images, learned, tested)
    published = bool(len(tested))
    if section.test_per_class is not None and section.shots is None and not published:
        raise InputError(
            f"`test_per_class={section.test_per_class}` keeps some of what is held out, and of {images.name} all are "
            "learned from; give `shots`"
        )
    draws = []
    for number in range(section.draws):
        support, test = [], []
        for label, name in enumerate(images.class_names):
            random = generator(section.split_seed, f"support/{number}/{label}")
            members = learned[images.labels[learned] == label]
            members = members[torch.randperm(len(members), generator=random)]
            shots = len(members) if section.shots is None else section.shots
            if len(members) < shots + (section.shots is not None and not published):
                left = "" if published else " and one is held out"
                raise InputError(
                    f"class {name!r} has {len(members)} images, but `shots` is {shots}{left}; lower `shots`"
                )
            others = tested[images.labels[tested] == label] if published else members[shots:]
            others = others[torch.randperm(len(others), generator=random)]
            support.append(members[:shots])
            test.append(others[: section.test_per_class])
        draws.append(Draw(torch.cat(support).sort().values, torch.cat(test).sort().values))
    used = torch.cat([torch.cat([draw.support, draw.test]) for draw in draws]).unique()
    numbers = torch.full((len(images),), -1)
    numbers[used] = torch.arange(len(used))
    renumbered = [Draw(numbers[draw.support], numbers[draw.test]) for draw in draws]
    return Draws(images.subset(used), renumbered, used, source)


def _without_copies(images: ImageSet, learned: Tensor, tested: Tensor) -> tuple[Tensor, Tensor]:
    """Leave images out that are copies, pixel for pixel: a held-out one would have been learned from."""
    order = torch.cat([learned, tested])
    first: dict[str, int] = {}
    for number, key in zip(order.tolist(), image_keys(images.subset(order)), strict=True):
        first.setdefault(key, number)
    copies = len(order) - len(first)
    if not copies:
        return learned, tested
    were = "image is a copy of another and is" if copies == 1 else "images are copies of others and are"
    warnings.warn(f"{copies} {were} left out of {images.name}", stacklevel=2)
    kept = torch.tensor(list(first.values()))
    return learned[torch.isin(learned, kept)], tested[torch.isin(tested, kept)]


def _pools(images: ImageSet, section: SupportSection) -> tuple[ImageSet, Tensor, Tensor]:
    """Leave classes out without images or beyond `ways`; give the numbers of images to learn from and to test on."""
    every = torch.arange(len(images))
    tested = images.subsets["test"].cpu() if {"train", "test"} <= set(images.subsets) else every[:0]
    learned = every[~torch.isin(every, tested)]
    labels = images.labels.cpu()
    present = labels[learned].unique()
    if not torch.isin(labels[tested], present).all():
        alone = images.class_names[int(labels[tested][~torch.isin(labels[tested], present)][0])]
        raise InputError(
            f"class {alone!r} of {images.name} has test images and none to learn from; add some, or drop it"
        )
    if len(present) < 2:
        only = images.class_names[int(present[0])] if len(present) else "none"
        raise InputError(f"{images.name} has one class, {only!r}; a classifier needs two or more")
    if section.ways is not None:
        if section.ways > len(present):
            raise InputError(f"{images.name} has {len(present)} classes, but `ways` is {section.ways}; lower `ways`")
        order = torch.randperm(len(present), generator=generator(section.split_seed, "ways"))
        present = present[order[: section.ways]].sort().values
        learned, tested = (some[torch.isin(labels[some], present)] for some in (learned, tested))
    names = tuple(images.class_names[label] for label in present.tolist())
    numbers = torch.zeros(len(images.class_names), dtype=torch.int64)
    numbers[present] = torch.arange(len(present))
    return replace(images, labels=numbers[labels], class_names=names, subsets={}), learned, tested
