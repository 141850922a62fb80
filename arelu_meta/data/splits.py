"""Splits: which images train, which select, which test, and what the test has never seen.

    by_image(images)                                        new images of known classes
    by_class(images, validation_classes=5, test_classes=5)  new classes
    by_group(images)                                        new patients (or writers)
    published(images)                                       the publisher's test part, or your own train/validation/test
    omniglot_standard(images)                               1,200 characters to train on, 423 to test

The Omniglot split of Vinyals et al. (2016) is not offered: it is a list of characters that was published as a file and
follows from no rule.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.seeding import generator

PARTS = ("train", "validation", "test")
HeldOut = Literal["images", "classes", "groups"]


@dataclass(frozen=True, eq=False)
class Split:
    """An image set divided into `train`, `validation` and `test`, normalised by the statistics of `train`.

    `held_out` names what the test part has that training never saw: new images of the same classes, new classes or new
    groups. `source` is the digest of the whole set, for which the image numbers in `indices` hold.
    """

    train: ImageSet
    validation: ImageSet
    test: ImageSet
    held_out: HeldOut
    indices: Mapping[str, Tensor]
    source: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 over the image numbers of the three parts."""
        sha = hashlib.sha256()
        for part in PARTS:
            sha.update(part.encode())
            sha.update(self.indices[part].cpu().contiguous().numpy().data)
        return sha.hexdigest()

    def to(self, device: torch.device | str) -> "Split":
        """Move the three parts to a device."""
        moved = {part: getattr(self, part).to(device) for part in PARTS}
        return Split(**moved, held_out=self.held_out, indices=self.indices, source=self.source)

    def write(self, path: str | Path) -> None:
        """Write the image numbers of each part to a JSON file, which appears whole or not at all."""
        head = {"held_out": self.held_out, "source": self.source, "digest": self.digest}
        content = head | {part: self.indices[part].tolist() for part in PARTS}
        path = Path(path)
        part_file = path.with_name(f"{path.name}.part")
        try:
            part_file.write_text(json.dumps(content))
            os.replace(part_file, path)
        except OSError as error:
            part_file.unlink(missing_ok=True)
            raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from error


def divide(
    images: ImageSet, indices: Mapping[str, Tensor], held_out: HeldOut, *, may_lack: tuple[str, ...] = ()
) -> Split:
    """Make a `Split` from image numbers per part; overlapping parts are refused, and empty ones but `may_lack`."""
    for part in PARTS:
        if len(indices[part]) == 0 and part not in may_lack:
            raise InputError(f"{images.name}: no images are left for {part}; change the shares or the counts")
    numbers = torch.cat([indices[part] for part in PARTS])
    if int(numbers.min()) < 0 or int(numbers.max()) >= len(images):
        raise InputError(f"{images.name} has images 0..{len(images) - 1}, but the split names others; draw it anew")
    if int(torch.bincount(numbers).max()) > 1:
        raise InputError(f"{images.name}: an image is in more than one of train, validation and test")
    train = images.subset(indices["train"], f"{images.name}/train")
    parts = {
        part: images.subset(indices[part], f"{images.name}/{part}").normalised_like(train)
        for part in ("validation", "test")
    }
    return Split(
        train=train.normalised_like(train), **parts, held_out=held_out, indices=dict(indices), source=images.digest
    )


def limit(
    images: ImageSet,
    split: Split,
    *,
    train: int | None = None,
    test: int | None = None,
    train_per_class: int | None = None,
    test_per_class: int | None = None,
    seed: int = 0,
) -> Split:
    """Keep fewer images of a split, the same ones for the same seed.

    Args:
        images: the set that was split.
        split: how it was split.
        train: so many training images in all, drawn in proportion to the classes; None keeps all.
        test: the same for validation and for test images, so many each.
        train_per_class: so many training images of each class, drawn after `train`; None keeps all.
        test_per_class: the same for validation and test images.
        seed: of the draw.

    Returns:
        The split of what is left. Where a class has fewer images, all of them stay; channel statistics are those of
        the images left to train on.
    """
    indices = dict(split.indices)
    for part in PARTS:
        total, per_class = (train, train_per_class) if part == "train" else (test, test_per_class)
        if total is not None and total < len(indices[part]):
            draw = generator(seed, f"limit/{images.name}/{part}")
            labels = images.labels.cpu()[indices[part]]
            indices[part] = _drawn_in_proportion(labels, indices[part], total, draw)
        if per_class is not None:
            order = torch.randperm(len(indices[part]), generator=generator(seed, f"kept/{part}"))
            labels = images.labels.cpu()[indices[part]][order]
            chosen = torch.cat([order[labels == label][:per_class] for label in range(len(images.class_names))])
            indices[part] = indices[part][chosen.sort().values]
    lacking = tuple(part for part in PARTS if len(split.indices[part]) == 0)
    return divide(images, indices, split.held_out, may_lack=lacking)


def joined(images: ImageSet, split: Split) -> Split:
    """Train on the validation images as well, for a run that chooses nothing; `validation` is then empty."""
    indices = dict(split.indices)
    indices["train"] = torch.cat([indices["train"], indices["validation"]]).sort().values
    indices["validation"] = indices["validation"][:0]
    return divide(images, indices, split.held_out, may_lack=("validation",))


def by_image(images: ImageSet, *, validation: float = 0.2, test: float = 0.2, seed: int = 0) -> Split:
    """Hold out a share of each class's images, at least one; the same classes occur in every part."""
    _check_shares(validation, test)
    draw = generator(seed, f"split/{images.name}")
    tested, validated, train = _stratified(images, torch.arange(len(images)), (test, validation), draw)
    return divide(images, {"train": train, "validation": validated, "test": tested}, held_out="images")


def by_class(images: ImageSet, *, validation_classes: int, test_classes: int, seed: int = 0) -> Split:
    """Hold out whole classes: no class of one part occurs in another.

    Classes whose images all belong to one and the same group (the turns of a character, the characters of a script) are
    a family and stay together, so a count can only be met by whole families.
    """
    if validation_classes < 1 or test_classes < 1:
        raise InputError(f"validation_classes {validation_classes} and test_classes {test_classes} must be 1 or more")
    families = class_families(images)
    order = torch.randperm(len(families), generator=generator(seed, f"split/{images.name}"))
    wanted = {"test": test_classes, "validation": validation_classes}
    chosen: dict[str, list[int]] = {part: [] for part in PARTS}
    for family in (families[i] for i in order.tolist()):
        part = next((part for part, count in wanted.items() if len(chosen[part]) + len(family) <= count), "train")
        chosen[part] += family
    for part, count in wanted.items():
        if len(chosen[part]) != count:
            raise InputError(
                f"{images.name}: {len(chosen[part])} instead of {count} {part}_classes fit, out of "
                f"{sum(map(len, families))} in {len(families)} families that stay whole; ask for {len(chosen[part])}"
            )
    labels = images.labels.cpu()
    return divide(images, {part: _members(labels, chosen[part]) for part in PARTS}, held_out="classes")


def class_families(images: ImageSet) -> list[list[int]]:
    """Classes that must stay on one side of a split: those whose images all belong to the same one group."""
    labels = images.labels.cpu()
    present = torch.nonzero(torch.bincount(labels)).squeeze(1).tolist()
    if images.groups is None:
        return [[label] for label in present]
    groups = images.groups.cpu()
    low = torch.full((len(images.class_names),), int(groups.max()) + 1).scatter_reduce(0, labels, groups, "amin")
    high = torch.full((len(images.class_names),), -1).scatter_reduce(0, labels, groups, "amax")
    families: dict[tuple[str, int], list[int]] = {}
    for label in present:
        one = low[label] == high[label]
        families.setdefault(("group", int(low[label])) if one else ("class", label), []).append(label)
    return list(families.values())


def by_group(images: ImageSet, *, validation: float = 0.2, test: float = 0.2, seed: int = 0) -> Split:
    """Hold out a share of the groups (patients), at least one: no group of one part occurs in another."""
    _check_shares(validation, test)
    if images.groups is None:
        raise InputError(f"{images.name} has no groups to split by; split by image or by class")
    groups = images.groups.cpu()
    present = torch.nonzero(torch.bincount(groups)).squeeze(1)
    if len(present) < len(PARTS):
        raise InputError(f"{images.name} has {len(present)} groups, but train, validation and test need one each")
    order = present[torch.randperm(len(present), generator=generator(seed, f"split/{images.name}"))]
    chosen = dict(
        zip(("test", "validation", "train"), torch.split(order, _sizes(len(order), (test, validation))), strict=True)
    )
    indices = {part: torch.nonzero(torch.isin(groups, numbers)).squeeze(1) for part, numbers in chosen.items()}
    return divide(images, indices, held_out="groups")


def published(images: ImageSet, *, validation: float = 0.1, seed: int = 0) -> Split:
    """Use the set's own `test` part, and its `validation` part or else a share of `train`, drawn class by class.

    Where no class of `train` occurs in `test`, whole classes of `train` are drawn for validation as well.
    """
    missing = [part for part in ("train", "test") if part not in images.parts]
    if missing:
        held = ", ".join(images.parts) or "no parts at all"
        raise InputError(
            f"{images.name} has no part {missing[0]!r} (it has {held}); split it by image, by class or by group"
        )
    if not 0 < validation < 1:
        raise InputError(f"validation {validation} must be a share between 0 and 1")
    train, test = images.parts["train"], images.parts["test"]
    labels = images.labels.cpu()
    new_classes = not torch.isin(labels[train], labels[test]).any()
    draw = generator(seed, f"split/{images.name}")
    if "validation" in images.parts:
        validated = images.parts["validation"]
    elif new_classes:
        classes = torch.nonzero(torch.bincount(labels[train])).squeeze(1)
        classes = classes[torch.randperm(len(classes), generator=draw)]
        if len(classes) < 2:
            raise InputError(f"{images.name} has one class to train on; give a validation part of its own")
        drawn = torch.isin(labels[train], classes[: _sizes(len(classes), (validation,))[0]])
        train, validated = train[~drawn], train[drawn]
    else:
        validated, train = _stratified(images, train, (validation,), draw)
    indices = {"train": train, "validation": validated, "test": test}
    return divide(images, indices, held_out="classes" if new_classes else "images")


def omniglot_standard(images: ImageSet, *, validation_classes: int = 100) -> Split:
    """Train on the first 1,200 characters in the publisher's order and test on the other 423.

    The order is that of `load_omniglot`: the 964 background characters, then the 659 evaluation characters, each sorted
    by alphabet and character name. Characters 0..1199 (all of background and the first 236 of evaluation) train,
    1200..1622 test; of the former the last `validation_classes` (1100..1199) are held back for validation. Turned
    characters go where their upright one goes. Nothing is drawn at random.
    """
    if images.groups is None or len(images.group_names) != 1623:
        raise InputError(f"{images.name} has {len(images.group_names)} characters, not Omniglot's 1623; use by_class")
    if not 0 < validation_classes < 1200:
        raise InputError(f"validation_classes {validation_classes} must leave some of the 1200 characters to train on")
    character = images.groups.cpu()
    borders = {"train": (0, 1200 - validation_classes), "validation": (1200 - validation_classes, 1200)}
    borders["test"] = (1200, 1623)
    indices = {
        part: torch.nonzero((character >= start) & (character < end)).squeeze(1)
        for part, (start, end) in borders.items()
    }
    return divide(images, indices, held_out="classes")


def _check_shares(validation: float, test: float) -> None:
    if not (0 < validation < 1 and 0 < test < 1 and validation + test < 1):
        raise InputError(f"validation {validation} and test {test} must be shares of 1 that leave some to train on")


def _sizes(count: int, shares: tuple[float, ...]) -> list[int]:
    """Round shares of a count to sizes of at least one that leave at least one; the last size is what is left.

    >>> _sizes(10, (0.2, 0.3)), _sizes(3, (0.8, 0.1))
    ([2, 3, 5], [1, 1, 1])
    """
    sizes: list[int] = []
    for later, share in zip(reversed(range(len(shares))), shares, strict=True):
        sizes.append(min(max(1, round(count * share)), count - sum(sizes) - later - 1))
    return [*sizes, count - sum(sizes)]


def _members(labels: Tensor, classes: list[int]) -> Tensor:
    return torch.nonzero(torch.isin(labels, torch.tensor(classes))).squeeze(1)


def _drawn_in_proportion(labels: Tensor, numbers: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """Draw `count` of some images so that every class keeps its share, to within one image.

    Shuffled, each class's images stand at even distances on a line; the first `count` of the line are taken.
    """
    shuffled = torch.randperm(len(numbers), generator=draw)
    place = torch.empty(len(numbers), dtype=torch.float64)
    for label in labels.unique():
        members = shuffled[labels[shuffled] == label]
        start = torch.rand((), generator=draw, dtype=torch.float64)  # so that no class is always cut short
        place[members] = (torch.arange(len(members)) + start) / len(members)
    return numbers[place.argsort()[:count]].sort().values


def _stratified(
    images: ImageSet, numbers: Tensor, shares: tuple[float, ...], draw: torch.Generator
) -> tuple[Tensor, ...]:
    """Draw shares of some images, class by class, and give them and the rest; each gets at least one."""
    labels = images.labels.cpu()[numbers]
    chosen: list[list[Tensor]] = [[] for _ in (*shares, "rest")]
    for label in torch.nonzero(torch.bincount(labels)).squeeze(1).tolist():
        members = numbers[labels == label]
        if len(members) < len(chosen):
            raise InputError(
                f"class {images.class_names[label]!r} of {images.name} has {len(members)} image(s), but {len(chosen)} "
                f"are needed to split by image; drop the class, add images or split by class"
            )
        members = members[torch.randperm(len(members), generator=draw)]
        for part, some in zip(chosen, torch.split(members, _sizes(len(members), shares)), strict=True):
            part.append(some)
    return tuple(torch.cat(part).sort().values for part in chosen)
