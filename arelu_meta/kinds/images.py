"""The images of a run: read, brought to a shape, and divided."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from arelu_meta import data
from arelu_meta.console import progress
from arelu_meta.data import splits
from arelu_meta.data.files.image_cache import keep_decoded
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs, fit_images, inputs_of
from arelu_meta.data.readers.omniglot import omniglot_standard
from arelu_meta.data.splits import Split
from arelu_meta.data.squares import Resize
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.spec import EpisodeInputSection
from arelu_meta.kinds.sections import DataSection, ImageShapeSection, InputSection
from arelu_meta.trust import TORCHVISION


def load_split(
    section: DataSection,
    *,
    root: str | None = None,
    shape: InputSection | EpisodeInputSection | None = None,
    train_on_validation: bool = False,
    prepare: Callable[[ImageSet], ImageSet] | None = None,
    real_targets: bool = False,
    side: int = 32,
    resize: Resize = "scale",
    bar: progress.Bar = progress.silent,
) -> Split:
    """Read the images, bring them to a shape, and divide them as the spec says; `prepare` resizes them where given.

    `side` is that of the squares that files of different sizes are read as where no shape names a size, and `resize`
    how that is done where no shape says it.
    """
    read_as = shape or ImageShapeSection(resize=resize)
    options = reader_options(section.dataset, section.dataset_options, read_as, side=side)
    images = data.load(section.dataset, root=root, **options)
    if images.masks is None:  # which a segmentation learns, whatever the classes
        check_classes(images)
    if images.targets is not None and not real_targets:
        remedy = "python -m arelu_meta.maml --task sinusoid is a regression"
        raise InputError(f"{images.name} has real targets, and this kind of run has no use for them; {remedy}")
    if shape is not None:
        size = 0 if prepare else shape.image_size
        images = fit_images(images, channels=shape.channels, image_size=size, resize=shape.resize)
        images = keep_decoded({"all": images}, bar)["all"]
    if prepare is not None:
        images = prepare(images)
    split = divide(images, section)
    if train_on_validation:
        split = splits.joined(images, split)
    if section.limit_train is not None or section.limit_test is not None:
        limits = {"train": section.limit_train, "test": section.limit_test}
        split = splits.limit(images, split, **limits, seed=section.split_seed)
    if len(split.test) < 2:
        raise InputError(f"{len(split.test)} test image of {section.dataset} gives no interval; at least 2 are needed")
    return split if shape is None else with_pixels(split, shape.normalise)


def check_classes(images: ImageSet) -> None:
    """Refuse a set of one class, whose images have no other answer."""
    if images.targets is None and len(images.class_names) < 2:
        raise InputError(
            f"{images.name} has one class, {images.class_names[0]!r}; two are needed at least, each in its own folder"
        )


def reader_options(
    dataset: str, given: Mapping[str, Any], shape: ImageShapeSection, *, side: int = 32, all_squares: bool = False
) -> dict[str, Any]:
    """Options of the set's reader: the squares that torchvision's sets, and files of different sizes, are read as.

    Args:
        dataset: its name or path.
        given: options of the user, which come first.
        shape: what images are to be brought to.
        side: of the squares where the shape names none.
        all_squares: files of a folder are read so where they are of one size, too.
    """
    from_torchvision = dataset.startswith(TORCHVISION)
    if not from_torchvision and not is_folder(dataset):
        return dict(given)
    size = shape.image_size or (0 if from_torchvision and not all_squares else side)
    if "image_size" in given:  # a size to read at, out of which `crop` cuts that of the network
        return {"resize": "squash" if shape.resize == "squash" else "scale", **given}
    if not size:
        return {"resize": shape.resize, **given}
    return {"image_size" if from_torchvision or all_squares else "mixed_size": size, "resize": shape.resize, **given}


def is_folder(dataset: str) -> bool:
    """Whether a set is a folder of files."""
    return data.is_path(dataset) and os.path.isdir(os.path.expanduser(dataset))


def inputs_of_run(images: ImageSet, shape: ImageShapeSection, crop_pct: float = 1.0) -> Inputs:
    """What a network takes that was trained on these images, and how a run of this shape makes them of files."""
    return replace(inputs_of(images, resize=shape.resize), crop_pct=crop_pct)


def divide(images: ImageSet, section: DataSection) -> Split:
    """Divide images as the spec says."""
    method = section.split
    if method == "auto":
        method = "published" if {"train", "test"} <= set(images.subsets) else "by_image"
    if method == "by_image":
        return splits.by_image(images, validation=section.validation, test=section.test, seed=section.split_seed)
    if method == "by_class":
        return splits.by_class(
            images,
            validation_classes=section.validation_classes,
            test_classes=section.test_classes,
            seed=section.split_seed,
        )
    if method == "by_group":
        return splits.by_group(images, validation=section.validation, test=section.test, seed=section.split_seed)
    if method == "published":
        return splits.published(images, validation=section.validation, seed=section.split_seed)
    return omniglot_standard(images)


def with_pixels(split: Split, normalise: bool | Literal["standardise", "weights", "unit", "none"]) -> Split:
    """Give pixels as networks are to see them: standardised (also True), in [0, 1] (also False), or 0 to 255."""
    if normalise in (True, "standardise", "weights"):  # the last are put in place with the network
        return split
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    if normalise == "none" and not split.train.is_vectors:  # (x / 255 - 0) / (1 / 255) = x
        mean, std = (0.0,) * split.train.channels, (1 / 255,) * split.train.channels
    return replace(split, **{part: replace(getattr(split, part), mean=mean, std=std) for part in splits.SUBSETS})
