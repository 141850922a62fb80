"""Data of the user: a folder, an `.npz`, or what a function returned: arrays or a torch Dataset.

load_user_data("birds/")        class folders, with train/validation/test above them or not; or a CSV of splits
load_user_data("birds.npz")     x, y or x_train, y_train, x_test, y_test
as_image_set(load(), "birds")   of a function: (x, y), a dict of arrays, a torch Dataset or an ImageSet

Arrays are x (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels, uint8 or floats in [0, 1], or vectors (N, D)
of any numbers; and y (N,), whole numbers from 0 on or strings. With `targets` (N,), real numbers, it is a regression:
rows are points, and y says which function each belongs to.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arelu_meta.data.files import checksums, read_arrays
from arelu_meta.data.files.image_files import GREY_MODES
from arelu_meta.data.files.image_folders import read_folder
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.data.squares import Resize, check_resize
from arelu_meta.errors import InputError

CHANNELS = (1, 3)
SUFFIXES = {"train": ("_train",), "validation": ("_validation", "_val"), "test": ("_test",)}

Array = np.ndarray[Any, Any]


def load_user_data(
    source: str | Path, *, image_size: int | None = None, mixed_size: int | None = None, resize: Resize = "scale"
) -> ImageSet:
    """Read images from a folder or an `.npz`.

    `image_size` makes the files of a folder squares when they are read, `mixed_size` does where they differ in size;
    `resize` says how (`data.squares`).
    """
    path = Path(os.path.expanduser(source))
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be at least 1, not {image_size}")
    check_resize(resize)
    if path.is_dir():
        return read_folder(path, image_size=image_size, mixed_size=mixed_size, resize=resize)
    if image_size is not None:
        raise InputError(
            f"image_size= resizes the image files of a folder, not {str(source)!r}; resize the arrays instead"
        )
    if path.suffix != ".npz":
        raise InputError(f"{path} is not an .npz; give an .npz, a folder of class folders, or package.module:function")
    return read_npz(path)


def as_image_set(result: Any, source: str) -> ImageSet:
    """Make an image set of what a function returned; `source` is its name or place."""
    if isinstance(result, ImageSet):
        return result
    name, provenance = source.rpartition(":")[2], Provenance(source=source)
    if isinstance(result, Mapping):
        return from_arrays(result, name=name, provenance=provenance)
    if isinstance(result, tuple) and len(result) == 2:
        return from_arrays({"x": result[0], "y": result[1]}, name=name, provenance=provenance)
    if hasattr(result, "__len__") and hasattr(result, "__getitem__"):
        return _from_dataset(result, name=name, provenance=provenance)
    raise InputError(f"{source} returned a {type(result).__name__}; return (x, y), a dict of arrays or a torch Dataset")


def _from_dataset(dataset: Any, *, name: str, provenance: Provenance) -> ImageSet:
    """Read all (image, label) pairs of a torch Dataset; `classes`, if it has them, name the labels."""
    if len(dataset) == 0:
        raise InputError(f"{name}: the Dataset is empty; return one with images")
    images, labels = [], []
    for number in range(len(dataset)):
        item = dataset[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(f"{name}[{number}] is a {type(item).__name__}; a Dataset must give (image, label) pairs")
        image = item[0]
        if isinstance(image, Image.Image):
            image = image.convert("L" if image.mode in GREY_MODES else "RGB")
        images.append(to_bytes(_numpy(image), f"{name}[{number}]"))  # so that the whole never exists as floats
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


def read_npz(path: Path) -> ImageSet:
    """Read `x` and `y`, or `x_train`, `y_train`, `x_test`, `y_test` (and `_validation`) from an `.npz`."""
    arrays = read_arrays(path)
    provenance = Provenance(str(path), False, {path.name: checksums(path).sha256})
    return from_arrays(arrays, name=path.stem, provenance=provenance)


def from_arrays(
    arrays: Mapping[str, Any],
    *,
    name: str,
    provenance: Provenance | None = None,
    class_names: tuple[str, ...] | None = None,
) -> ImageSet:
    """Make an image set of `x`, `y` or of `x_train`, `y_train`, ...

    >>> x, y = np.zeros((4, 8, 8, 3), np.uint8), np.array(["cat", "dog", "cat", "dog"])
    >>> mine = from_arrays({"x": x, "y": y}, name="mine")
    >>> mine.images.shape, mine.class_names, mine.labels.tolist()
    (torch.Size([4, 3, 8, 8]), ('cat', 'dog'), [0, 1, 0, 1])
    """
    keys = _keys(arrays, name)
    images = [_tensor(_numpy(arrays[f"x{key}"]), f"{name}: x{key}") for key in keys.values()]
    labels = [_numpy(arrays[f"y{key}"]) for key in keys.values()]
    if not sum(map(len, images)):
        raise InputError(f"{name} holds no images; give at least one of each class")
    for key, x, y in zip(keys.values(), images, labels, strict=True):
        if y.reshape(-1).shape != (len(x),):
            raise InputError(f"{name}: x{key} holds {len(x)} images, but y{key} is {y.shape}; give one label per image")
        if x.shape[1:] != images[0].shape[1:]:
            raise InputError(
                f"{name}: x{key} is {tuple(x.shape)}, but the first {tuple(images[0].shape)}; make sizes equal"
            )
    numbers, names = _numbered(np.concatenate([y.reshape(-1) for y in labels]), class_names, name)
    ends = np.cumsum([0, *map(len, images)])
    subsets = {key: torch.arange(ends[i], ends[i + 1]) for i, key in enumerate(keys) if key}
    return ImageSet(
        name=name,
        images=torch.cat(images),
        labels=numbers,
        class_names=names,
        subsets=subsets,
        provenance=provenance or Provenance(name),
        targets=_targets(arrays, keys, images, name),
    )


def _targets(arrays: Mapping[str, Any], keys: Mapping[str, str], images: list[Tensor], name: str) -> Tensor | None:
    """Real targets (N, 1) of all subsets, of which all or none have them."""
    found = [_numpy(arrays[f"targets{key}"]) for key in keys.values() if f"targets{key}" in arrays]
    if not found:
        return None
    shapes, wanted = [y.reshape(-1).shape for y in found], [(len(x),) for x in images]
    if shapes != wanted or any(y.dtype.kind not in "fiu" or not np.isfinite(y).all() for y in found):
        given = ", ".join(f"{y.dtype} {y.shape}" for y in found)
        raise InputError(f"{name}: targets are {given}; give one finite number for each of {wanted} rows")
    return torch.from_numpy(np.concatenate([y.reshape(-1, 1) for y in found]).astype(np.float32))


def _tensor(x: Array, name: str) -> Tensor:
    """Bring an array of vectors to float32 (N, D, 1, 1), and any other to images."""
    if x.ndim != 2:
        return to_images(x, name)
    if x.dtype.kind not in "fiu" or not x.shape[1] or not np.isfinite(x).all():
        raise InputError(f"{name} is {x.dtype} {x.shape}; give vectors (N, D) of finite numbers")
    return torch.from_numpy(x.astype(np.float32))[:, :, None, None]


def to_images(x: Array, name: str) -> Tensor:
    """Bring an array of images to uint8 (N, C, H, W)."""
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4:
        raise InputError(f"{name} is {x.shape}; give (N, H, W), (N, H, W, C) or (N, C, H, W), or vectors (N, D)")
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if first == last:
        raise InputError(f"{name} is {x.shape}: which axis are the channels? give (N, C, H, W) with 1 or 3 of them")
    return torch.from_numpy(np.ascontiguousarray(to_bytes(x if first else x.transpose(0, 3, 1, 2), name)))


def to_bytes(x: Array, name: str) -> Array:
    """Bring pixels to uint8: whole numbers 0..255 as they are, floats in [0, 1] times 255."""
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind not in "fiu" or x.size == 0:
        raise InputError(f"{name} is {x.dtype} {x.shape}; give uint8 or floats in [0, 1]")
    limit = 1 if x.dtype.kind == "f" else 255
    low, high = x.min(), x.max()
    if not (low >= 0 and high <= limit):  # also true of NaN
        raise InputError(f"{name} holds {x.dtype} values from {low} to {high}; give uint8 or floats in [0, 1]")
    return np.rint(x * 255).astype(np.uint8) if limit == 1 else x.astype(np.uint8)


def _numbered(y: Array, class_names: tuple[str, ...] | None, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """Number the labels 0, 1, ... in their own order and name them by their values.

    Labels that are numbers of given names stay as they are: a class without images keeps its place.
    """
    if class_names is not None:
        return torch.from_numpy(y.astype(np.int64)), class_names
    if y.dtype.kind not in "iuUS":
        raise InputError(f"{name}: labels are {y.dtype}; give whole numbers or strings")
    values, numbers = np.unique(y.astype(str) if y.dtype.kind == "S" else y, return_inverse=True)
    if values.dtype.kind == "i" and len(values) and values[0] < 0:
        raise InputError(f"{name}: label {values[0]} is negative; drop the images that have no label")
    return torch.from_numpy(numbers.reshape(-1).astype(np.int64)), tuple(str(value) for value in values)


def _keys(arrays: Mapping[str, Any], name: str) -> dict[str, str]:
    """Map the subsets that are there to the suffix of their arrays; a nameless one if they are just x and y."""
    if "x" in arrays and "y" in arrays:
        return {"": ""}
    keys = {
        subset: suffix
        for subset, suffixes in SUFFIXES.items()
        for suffix in suffixes
        if f"x{suffix}" in arrays and f"y{suffix}" in arrays
    }
    if "train" not in keys:
        held = ", ".join(arrays) or "nothing"
        raise InputError(f"{name} holds {held}; give x and y, or x_train, y_train, x_test, y_test")
    return keys


def _numpy(values: Any) -> Array:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
