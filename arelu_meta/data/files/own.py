"""Anyone's own data: a folder, an `.npz`, or a function.

load_own("birds/")                    class folders, with train/validation/test above them or not; or a CSV of splits
load_own("birds.npz")                 x, y or x_train, y_train, x_test, y_test
load_own("mypackage.birds:load")      a function that returns (x, y), a dict of arrays, a torch Dataset or an ImageSet
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from arelu_meta.data.files.arrays import from_arrays, read_npz, to_bytes
from arelu_meta.data.files.folders import read_folder
from arelu_meta.data.files.image_files import GREY_MODES
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.errors import InputError
from arelu_meta.registry import load_attribute


def load_own(source: str | Path, *, image_size: int | None = None) -> ImageSet:
    """Read your own images from a folder, an `.npz` or a function; `image_size` resizes the files of a folder."""
    path = Path(os.path.expanduser(source))
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be at least 1, not {image_size}")
    if path.is_dir():
        return read_folder(path, image_size=image_size)
    if image_size is not None:
        raise InputError(
            f"image_size= resizes the image files of a folder, not {str(source)!r}; resize the arrays instead"
        )
    if path.is_file():
        if path.suffix != ".npz":
            raise InputError(
                f"{path} is not an .npz; give an .npz, a folder of class folders, or package.module:function"
            )
        return read_npz(path)
    if is_target(str(source)):
        return call_own(str(source))
    raise InputError(f"{str(source)!r} is neither a folder, a file nor package.module:function; check the spelling")


def is_target(source: str) -> bool:
    """Tell whether a name has the form `package.module:function`."""
    module, colon, function = source.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def call_own(target: str) -> ImageSet:
    """Call `package.module:function` and make an image set of what it returns."""
    function = load_attribute(target)
    if not callable(function):
        raise InputError(
            f"{target} is a {type(function).__name__}, not a function; name one that returns arrays or a Dataset"
        )
    result = function()
    if isinstance(result, ImageSet):
        return result
    name, provenance = target.partition(":")[2], Provenance(source=target)
    if isinstance(result, Mapping):
        return from_arrays(result, name=name, provenance=provenance)
    if isinstance(result, tuple) and len(result) == 2:
        return from_arrays({"x": result[0], "y": result[1]}, name=name, provenance=provenance)
    if hasattr(result, "__len__") and hasattr(result, "__getitem__"):
        return _from_dataset(result, name=name, provenance=provenance)
    raise InputError(f"{target} returned a {type(result).__name__}; return (x, y), a dict of arrays or a torch Dataset")


def _from_dataset(dataset: Any, *, name: str, provenance: Provenance) -> ImageSet:
    """Read all (image, label) pairs of a torch Dataset; `classes`, if it has them, name the labels."""
    if len(dataset) == 0:
        raise InputError(f"{name}: the Dataset is empty; return one with images")
    images, labels = [], []
    for number in range(len(dataset)):
        item = dataset[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(f"{name}[{number}] is a {type(item).__name__}; a Dataset must give (image, label) pairs")
        images.append(_picture(item[0], f"{name}[{number}]"))
        labels.append(int(item[1]))
    shapes = list(dict.fromkeys(image.shape for image in images))
    if len(shapes) > 1:
        raise InputError(
            f"{name}: images differ in size, {shapes[0]} and {shapes[1]}; resize them in the Dataset's transform"
        )
    classes = getattr(dataset, "classes", None)
    arrays = {"x": np.stack(images), "y": np.array(labels)}
    names = tuple(str(label) for label in classes) if classes else None
    return from_arrays(arrays, name=name, provenance=provenance, class_names=names)


def _picture(image: Any, name: str) -> np.ndarray[Any, Any]:
    """Bring one picture of a Dataset to uint8, so that the whole never exists as floats."""
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("L" if image.mode in GREY_MODES else "RGB"))
    return to_bytes(image.numpy() if isinstance(image, Tensor) else np.asarray(image), name)
