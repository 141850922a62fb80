"""Splits: which images train, which select, which test, and what the test has never seen.

by_image(images)                                        new images of known classes
by_class(images, validation_classes=5, test_classes=5)  new classes
by_group(images)                                        new patients (or writers)
published(images)                                       the publisher's test images, or your own
omniglot_standard(images)                               in `readers/omniglot.py`: 1,200 characters train, 423 test
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.rows import ImageRows
from arelu_meta.errors import InputError
from arelu_meta.seeding import generator

SUBSETS = ("train", "validation", "test")
HeldOut = Literal["images", "classes", "groups"]


@dataclass(frozen=True, eq=False)
class Split:
    """An image set divided into `train`, `validation` and `test`, normalised by the channel statistics of `train`.

    `held_out` names what the test has that training never saw: new images of the same classes, new classes or groups.
    """

    train: ImageSet
    validation: ImageSet  # may be empty
    test: ImageSet
    held_out: HeldOut
    indices: Mapping[str, Tensor]  # image numbers (n,) of each subset in the whole set
    source: str = ""  # digest of the whole set

    @property
    def digest(self) -> str:
        """SHA-256 over the image numbers of the three subsets."""
        sha = hashlib.sha256()
        for subset in SUBSETS:
            sha.update(subset.encode())
            sha.update(self.indices[subset].cpu().contiguous().numpy().data)
        return sha.hexdigest()

    def to(self, device: torch.device | str) -> "Split":
        """Move the three subsets to a device."""
        return replace(self, **{subset: getattr(self, subset).to(device) for subset in SUBSETS})

    def write(self, path: str | Path) -> None:
        """Write the image numbers of each subset to a JSON file, with digests of the split and of the whole set."""
        head = {"held_out": self.held_out, "source": self.source, "digest": self.digest}
        content = json.dumps(head | {subset: self.indices[subset].tolist() for subset in SUBSETS})
        try:
            Path(path).write_text(content)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from error


def divide(
    images: ImageSet, indices: Mapping[str, Tensor], held_out: HeldOut, *, may_lack: tuple[str, ...] = ()
) -> Split:
    """Make a `Split` from image numbers (n,) per subset; overlaps are refused, and empty subsets but `may_lack`."""
    for subset in SUBSETS:
        if len(indices[subset]) == 0 and subset not in may_lack:
            raise InputError(f"{images.name}: no images are left for {subset}; change the shares or the counts")
    numbers = torch.cat([indices[subset] for subset in SUBSETS])
    if int(numbers.min()) < 0 or int(numbers.max()) >= len(images):
        raise InputError(f"{images.name} has images 0..{len(images) - 1}, but the split names others; draw it anew")
    if int(torch.bincount(numbers).max()) > 1:
        raise InputError(f"{images.name}: an image is in more than one of train, validation and test")
    subsets = {name: images.subset(indices[name], f"{images.name}/{name}") for name in SUBSETS}
    if not isinstance(images.images, ImageRows) or images.images.source.ready:  # else by who decodes them
        subsets = {name: subset.normalised_like(subsets["train"]) for name, subset in subsets.items()}
    return Split(**subsets, held_out=held_out, indices=dict(indices), source=images.digest)


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
    """Keep fewer images of a split, the same ones for the same seed; None keeps all.

    Args:
        images: the set that was split.
        split: how it was split.
        train: training images in all, drawn in proportion to the classes.
        test: validation and test images in all, so many each.
        train_per_class: training images of each class that has more, drawn after `train`.
        test_per_class: validation and test images of each class.
        seed: of the draw.

    Returns:
        The split of what is left, normalised by the images left to train on.
    """
    indices = dict(split.indices)
    for subset in SUBSETS:
        total, per_class = (train, train_per_class) if subset == "train" else (test, test_per_class)
        if total is not None and total < len(indices[subset]):
            draw = generator(seed, f"limit/{images.name}/{subset}")
            labels = images.labels.cpu()[indices[subset]]
            indices[subset] = _drawn_in_proportion(labels, indices[subset], total, draw)
        if per_class is not None:
            order = torch.randperm(len(indices[subset]), generator=generator(seed, f"kept/{subset}"))
            labels = images.labels.cpu()[indices[subset]][order]
            chosen = torch.cat([order[labels == label][:per_class] for label in range(len(images.class_names))])
            indices[subset] = indices[subset][chosen.sort().values]
    lacking = tuple(subset for subset in SUBSETS if len(split.indices[subset]) == 0)
    return divide(images, indices, split.held_out, may_lack=lacking)


def joined(images: ImageSet, split: Split) -> Split:
    """Train on the validation images as well, for a run that selects nothing; `validation` is then empty."""
    indices = dict(split.indices)
    indices["train"] = torch.cat([indices["train"], indices["validation"]]).sort().values
    indices["validation"] = indices["validation"][:0]
    return divide(images, indices, split.held_out, may_lack=("validation",))


def by_image(images: ImageSet, *, validation: float = 0.2, test: float = 0.2, seed: int = 0) -> Split:
    """Hold out a share of each class's images, at least one; the same classes occur in every subset.

    Args:
        images: a set with at least three images of each class.
        validation: share of the images to select on.
        test: share of the images to test on.
        seed: of the draw.

    Returns:
        The split, with `held_out` "images".

    Raises:
        InputError: shares that leave nothing to train on, or a class with too few images.

    Example:
        >>> from arelu_meta import data
        >>> split = by_image(data.load("digits"))
        >>> len(split.train), len(split.validation), len(split.test)
        (1079, 359, 359)
    """
    _check_shares(validation, test)
    draw = generator(seed, f"split/{images.name}")
    tested, validated, train = _stratified(images, torch.arange(len(images)), (test, validation), draw)
    return divide(images, {"train": train, "validation": validated, "test": tested}, held_out="images")


def by_class(images: ImageSet, *, validation_classes: int, test_classes: int, seed: int = 0) -> Split:
    """Hold out whole classes: no class of one subset occurs in another.

    Classes of one family (`ImageSet.class_families`: the turns of a character) stay together.

    Args:
        images: the set; labels and class names of the subsets stay those of the whole.
        validation_classes: number of classes to select on.
        test_classes: number of classes to test on.
        seed: of the draw.

    Returns:
        The split, with `held_out` "classes".

    Raises:
        InputError: counts that cannot be met.
    """
    families = images.class_families()
    total, held = sum(map(len, families)), (validation_classes, test_classes)
    if min(held) < 1 or sum(held) >= total:
        asked = f"{images.name} has {total} classes, {held[0]} to validate and {held[1]} to test on do not go with it"
        few = f"`ways` to {total // 3}" if total >= 6 else "`ways`"  # as many to train on as to validate and to test
        raise InputError(f"{asked}; lower {few}, `validation_classes`, `test_classes`, or set `split='by_image'`")
    order = torch.randperm(len(families), generator=generator(seed, f"split/{images.name}"))
    wanted = {"test": test_classes, "validation": validation_classes}
    chosen: dict[str, list[int]] = {subset: [] for subset in SUBSETS}
    for family in (families[i] for i in order.tolist()):
        subset = next((name for name, count in wanted.items() if len(chosen[name]) + len(family) <= count), "train")
        chosen[subset] += family
    for subset, count in wanted.items():
        if len(chosen[subset]) != count:
            fit = f"{len(chosen[subset])} instead of {count} {subset}_classes fit, out of {total}"
            whole = f"in {len(families)} families that stay whole; ask for {len(chosen[subset])}"
            raise InputError(f"{images.name}: {fit} {whole}")
    labels = images.labels.cpu()
    indices = {name: torch.isin(labels, torch.tensor(some)).nonzero().squeeze(1) for name, some in chosen.items()}
    return divide(images, indices, held_out="classes")


def by_group(images: ImageSet, *, validation: float = 0.2, test: float = 0.2, seed: int = 0) -> Split:
    """Hold out a share of the groups (patients, writers), at least one: no group of one subset occurs in another.

    Arguments are those of `by_image`; the set needs three groups. The split has `held_out` "groups".
    """
    _check_shares(validation, test)
    if images.groups is None:
        raise InputError(f"{images.name} has no groups to split by; split by image or by class")
    groups = images.groups.cpu()
    present = torch.nonzero(torch.bincount(groups)).squeeze(1)
    if len(present) < len(SUBSETS):
        raise InputError(f"{images.name} has {len(present)} groups, but train, validation and test need one each")
    order = present[torch.randperm(len(present), generator=generator(seed, f"split/{images.name}"))]
    chosen = torch.split(order, _sizes(len(order), (test, validation)))  # of test, validation, train
    members = [torch.isin(groups, some).nonzero().squeeze(1) for some in chosen]
    indices = dict(zip(("test", "validation", "train"), members, strict=True))
    return divide(images, indices, held_out="groups")


def published(images: ImageSet, *, validation: float = 0.1, seed: int = 0) -> Split:
    """Use the set's own `test` images, and its `validation` images or else a share of `train`, drawn class by class.

    Args:
        images: a set with `subsets` "train" and "test".
        validation: share of `train` to select on where the set has no `validation`. Where no class of `train` occurs
            in `test`, whole classes are drawn.
        seed: of the draw.

    Returns:
        The split, with `held_out` "classes" where no class of `train` occurs in `test`, else "images".

    Raises:
        InputError: no such subsets, or a class with too few images.
    """
    for subset in ("train", "test"):
        if subset not in images.subsets:
            names = ", ".join(images.subsets) or "none"
            raise InputError(f"{images.name} has no subset {subset!r} (it has {names}); use another way to split it")
    if not 0 < validation < 1:
        raise InputError(f"validation {validation} must be a share between 0 and 1")
    train, test = images.subsets["train"], images.subsets["test"]
    labels = images.labels.cpu()
    new_classes = not torch.isin(labels[train], labels[test]).any()
    draw = generator(seed, f"split/{images.name}")
    if "validation" in images.subsets:
        validated = images.subsets["validation"]
    elif new_classes:
        classes = torch.nonzero(torch.bincount(labels[train])).squeeze(1)
        classes = classes[torch.randperm(len(classes), generator=draw)]
        if len(classes) < 2:
            raise InputError(f"{images.name} has one class to train on; give it a subset validation")
        drawn = torch.isin(labels[train], classes[: _sizes(len(classes), (validation,))[0]])
        train, validated = train[~drawn], train[drawn]
    else:
        validated, train = _stratified(images, train, (validation,), draw)
    indices = {"train": train, "validation": validated, "test": test}
    return divide(images, indices, held_out="classes" if new_classes else "images")


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


def _drawn_in_proportion(labels: Tensor, numbers: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """Draw `count` of some images so that every class keeps its share, to within one image."""
    # Shuffled, each class's images stand at even distances on a line; the first `count` of the line are taken.
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
    """Draw shares of some images class by class, at least one each; return the shares and the rest."""
    labels = images.labels.cpu()[numbers]
    chosen: list[list[Tensor]] = [[] for _ in (*shares, "rest")]
    for label in torch.nonzero(torch.bincount(labels)).squeeze(1).tolist():
        members = numbers[labels == label]
        if len(members) < len(chosen):
            held = f"class {images.class_names[label]!r} of {images.name} has {len(members)} image(s)"
            raise InputError(f"{held}, but {len(chosen)} are needed; drop the class, add images or split by class")
        members = members[torch.randperm(len(members), generator=draw)]
        for share, drawn in zip(chosen, torch.split(members, _sizes(len(members), shares)), strict=True):
            share.append(drawn)
    return tuple(torch.cat(share).sort().values for share in chosen)
