"""Classification sets of torchvision by name: `torchvision:Flowers102`.

They are looked for in the folder of the published sets, as torchvision lays them out there, and downloaded to it. What
their files are is torchvision's to check, so that the sets count as unverified.
"""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision.datasets
from filelock import FileLock
from PIL import Image
from torch import Tensor

from arelu_meta.data.files import data_root
from arelu_meta.data.files.download import OFFLINE
from arelu_meta.data.files.image_files import GREY_MODES
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.data.squares import Resize, check_resize, squared
from arelu_meta.errors import InputError, first_line, unknown
from arelu_meta.registry import check_accepts, parameters_of

Parts = Mapping[str, Mapping[str, object]]  # subsets, and what a constructor is given for each

_WHOLE: Parts = {"": {}}
_TRAIN: Parts = {"train": {"train": True}, "test": {"train": False}}
_TWO: Parts = {"train": {"split": "train"}, "test": {"split": "test"}}
_THREE: Parts = {"train": {"split": "train"}, "validation": {"split": "val"}, "test": {"split": "test"}}
SETS: dict[str, Parts] = {
    **dict.fromkeys(("Caltech101", "Caltech256", "EuroSAT", "FakeData", "SEMEION", "SUN397"), _WHOLE),
    **dict.fromkeys(("CIFAR10", "CIFAR100", "FashionMNIST", "KMNIST", "MNIST", "QMNIST", "USPS"), _TRAIN),
    **dict.fromkeys(("FER2013", "Food101", "GTSRB", "StanfordCars", "STL10", "SVHN"), _TWO),
    **dict.fromkeys(("DTD", "FGVCAircraft", "Flowers102", "PCAM", "RenderedSST2"), _THREE),
    "Country211": {"train": {"split": "train"}, "validation": {"split": "valid"}, "test": {"split": "test"}},
    "EMNIST": {"train": {"split": "balanced", "train": True}, "test": {"split": "balanced", "train": False}},
    "Imagenette": {"train": {"split": "train"}, "test": {"split": "val"}},
    "OxfordIIITPet": {"train": {"split": "trainval"}, "test": {"split": "test"}},
}
"""those with one label from 0 on for each image, the same in all parts"""


def check_torchvision(name: str) -> None:
    """Refuse a name that is not that of a classification set of torchvision."""
    if name in SETS:
        return
    if name in torchvision.datasets.__all__:
        works = ", ".join(sorted(set(SETS) - {"FakeData"}))
        raise InputError(f"torchvision's {name} is not read as a set of images with a class each; these are: {works}")
    raise unknown("set of torchvision", name, SETS)


def load_torchvision(
    name: str,
    *,
    root: str | Path | None = None,
    image_size: int | None = None,
    resize: Resize = "scale",
    **options: object,
) -> ImageSet:
    """Read a set with the subsets that torchvision divides it into.

    Args:
        name: of the class in `torchvision.datasets`, one of `SETS`.
        root: as for `data.load`.
        image_size: side in pixels of the squares that images are read as.
        resize: how they are made squares, see `data.squares`.
        **options: of the class, such as `annotation_level="family"` of FGVCAircraft.

    Returns:
        The images, grey if all of them are, else in colour.

    Raises:
        InputError: no such set or option, files that are missing and cannot be downloaded, or images of several sizes.
    """
    check_torchvision(name)
    check_resize(resize)
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be at least 1, not {image_size}")
    make, folder = getattr(torchvision.datasets, name), data_root(root)
    _check_options(name, make, options)
    images, labels, subsets, classes = list[Image.Image](), list[int](), dict[str, Tensor](), set[tuple[str, ...]]()
    for part, arguments in SETS[name].items():
        dataset = _opened(name, make, {**arguments, **options}, folder)
        start = len(labels)
        for image, label in _pairs(dataset):
            images.append(squared(image, image_size, resize) if image_size else image)
            labels.append(label)
        subsets |= {part: torch.arange(start, len(labels))} if part else {}
        classes.add(tuple(map(str, getattr(dataset, "classes", ()))))
    names = classes.pop() if len(classes) == 1 else ()
    if len(names) <= max(labels):
        names = tuple(map(str, range(max(labels) + 1)))
    read_size = 0 if resize == "crop" else image_size or 0
    return ImageSet(
        name=name.lower(),
        images=_stacked(images, name),
        labels=torch.tensor(labels),
        class_names=names,
        subsets=subsets,
        provenance=Provenance(f"torchvision.datasets.{name}", read_size=read_size, read_resize=resize),
    )


def _pairs(dataset: Any) -> Iterator[tuple[Image.Image, int]]:
    """Go through the images of a torchvision set, each grey or in colour as it is, with their labels."""
    for number in range(len(dataset)):
        image, label = dataset[number]
        yield image.convert("L" if image.mode in GREY_MODES else "RGB"), int(label)


def _check_options(name: str, make: Any, options: Mapping[str, object]) -> None:
    """Refuse options that the class does not take, and those that are filled here."""
    by_part = set(SETS[name].get("train", {})) - ({"split"} if name == "EMNIST" else set())  # whose splits are sets
    filled = {"root", "download", "transform", "target_transform", "transforms", "loader", *by_part}
    if refused := filled.intersection(options):
        raise unknown(f"option of {name}:", min(refused), {*parameters_of(make)[0], "image_size", "resize"} - filled)
    check_accepts(name, make, options)


def is_local(name: str, root: Path) -> bool:
    """Whether a set can be read without a download."""
    check_torchvision(name)
    make = getattr(torchvision.datasets, name)
    try:
        for arguments in SETS[name].values():
            _constructor(make, arguments, root)()
    except (RuntimeError, OSError, ImportError, ValueError):
        return False
    return True


def _constructor(make: Any, arguments: Mapping[str, object], folder: Path) -> "partial[Any]":
    """The class with its arguments, and the folder if it takes one."""
    return partial(make, **arguments, **({"root": str(folder)} if "root" in parameters_of(make)[0] else {}))


def _opened(name: str, make: Any, arguments: Mapping[str, object], folder: Path) -> Any:
    """One part of a set, downloaded where it is missing and may be."""
    taken, any_name = parameters_of(make)
    constructor = _constructor(make, arguments, folder)
    try:
        return constructor()
    except (RuntimeError, OSError) as error:  # what torchvision raises for missing files
        reason = first_line(error)
    except Exception as error:
        given = ", ".join(f"{option}={value!r}" for option, value in arguments.items())
        raise InputError(f"torchvision's {name} cannot be read with {given}: {first_line(error)}") from error
    place = f"put its files into {folder} as torchvision does, or use a bundled set such as 'digits'"
    if "download" not in taken and not any_name:
        raise InputError(f"{name} is not there, and torchvision does not download it ({reason}); {place}")
    if os.environ.get(OFFLINE, "0") not in ("", "0"):
        raise InputError(f"{name}: cannot download it ({OFFLINE} is set); {place}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".torchvision-{name}.lock"):
            return constructor(download=True)
    except Exception as error:  # of any host, archive or module that a set needs
        raise InputError(f"{name}: cannot download it ({first_line(error)}); {place}") from error


def _stacked(images: list[Image.Image], name: str) -> Tensor:
    """Images of one size as uint8 (N, C, H, W); grey ones among colour become colour."""
    sizes = list(dict.fromkeys(image.size for image in images))
    if len(sizes) > 1:
        shown = " and ".join(f"{width}x{height}" for width, height in sizes[:2])
        raise InputError(f"images of {name} differ in size ({shown}); set `image_size`, for example to 84")
    mode = "L" if all(image.mode == "L" for image in images) else "RGB"
    width, height = sizes[0]
    stacked = torch.empty(len(images), 1 if mode == "L" else 3, height, width, dtype=torch.uint8)
    for row, image in zip(stacked, images, strict=True):
        pixels = np.array(image if image.mode == mode else image.convert(mode))
        row.copy_(torch.from_numpy(pixels.reshape(height, width, -1)).permute(2, 0, 1))
    return stacked
