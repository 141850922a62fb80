"""Read and divide the images of a spec."""

from dataclasses import replace

from arelu_meta import data
from arelu_meta.data import splits
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import fit_images
from arelu_meta.data.readers.omniglot import omniglot_standard
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import DataSection
from arelu_meta.kinds.supervised_sections import FitSection

EVALUATION_SEED = 0  # splits, validation and test episodes are the same for every run seed and every arm


def load_split(
    section: DataSection, *, root: str | None = None, fit: FitSection | None = None, train_on_validation: bool = False
) -> Split:
    """Read the images, make them fit, and divide them as the spec says."""
    images = data.load(section.dataset, root=root, **section.dataset_options)
    if fit is not None:
        images = fit_images(images, channels=fit.channels, image_size=fit.image_size, resize=fit.resize)
    split = divided(images, section)
    if train_on_validation:
        split = splits.joined(images, split)
    split = limited(images, split, section)
    if len(split.test) < 2:
        raise InputError(f"{len(split.test)} test image of {section.dataset} gives no interval; at least 2 are needed")
    return split if fit is None or fit.normalise else without_statistics(split)


def limited(images: ImageSet, split: Split, section: DataSection) -> Split:
    """Keep the part of the set that the spec asks for."""
    if section.limit_train is None and section.limit_test is None:
        return split
    return splits.limit(images, split, train=section.limit_train, test=section.limit_test, seed=EVALUATION_SEED)


def without_statistics(split: Split) -> Split:
    """Leave pixels in [0, 1], not normalised by channel."""
    parts = {part: replace(getattr(split, part), mean=(), std=()) for part in splits.SUBSETS}
    return replace(split, **parts)


def divided(images: ImageSet, section: DataSection) -> Split:
    """Divide images as the spec says."""
    if section.split == "auto":
        chosen = "published" if {"train", "test"} <= set(images.subsets) else "by_image"
        return divided(images, section.model_copy(update={"split": chosen}))
    if section.split == "by_image":
        return splits.by_image(images, validation=section.validation, test=section.test, seed=EVALUATION_SEED)
    if section.split == "by_class":
        return splits.by_class(
            images,
            validation_classes=section.validation_classes,
            test_classes=section.test_classes,
            seed=EVALUATION_SEED,
        )
    if section.split == "by_group":
        return splits.by_group(images, validation=section.validation, test=section.test, seed=EVALUATION_SEED)
    if section.split == "published":
        return splits.published(images, validation=section.validation, seed=EVALUATION_SEED)
    return omniglot_standard(images)
