"""Image sets by name. Listing them imports no torch; `load` reads one.

    from arelu_meta import data
    digits = data.load("digits")

A new set is one file with a function that returns an `ImageSet`, and one line here.
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arelu_meta.errors import InputError, unknown
from arelu_meta.registry import Entry, Registry

if TYPE_CHECKING:
    from arelu_meta.data.imageset import ImageSet


@dataclass(frozen=True)
class DatasetEntry(Entry):
    """A named image set. Bundled ones come with the dependencies; the others are looked for under a data root."""

    bundled: bool = False


_REGISTRY = Registry[DatasetEntry]("dataset")
_REGISTRY.add(
    DatasetEntry(
        "digits",
        "arelu_meta.data.bundled.digits:load_digits",
        summary="1,797 handwritten digits of scikit-learn, 1x28x28, 10 classes",
        bundled=True,
    ),
    DatasetEntry("mnist", "arelu_meta.data.readers.mnist:load_mnist", "70,000 handwritten digits, 1x28x28, 10 classes"),
    DatasetEntry(
        "fashion_mnist", "arelu_meta.data.readers.mnist:load_fashion_mnist", "70,000 clothes, 1x28x28, 10 classes"
    ),
    DatasetEntry("svhn", "arelu_meta.data.readers.svhn:load_svhn", "99,289 house number digits, 3x32x32, 10 classes"),
    DatasetEntry("cifar10", "arelu_meta.data.readers.cifar:load_cifar10", "60,000 photographs, 3x32x32, 10 classes"),
    DatasetEntry("cifar100", "arelu_meta.data.readers.cifar:load_cifar100", "60,000 photographs, 3x32x32, 100 classes"),
    DatasetEntry(
        "omniglot", "arelu_meta.data.readers.omniglot:load_omniglot", "32,460 drawings, 1x28x28, 1,623 characters"
    ),
    DatasetEntry(
        "lgg", "arelu_meta.data.readers.lgg:load_lgg", "3,929 MRI slices with tumour masks, 3x256x256, 110 patients"
    ),
    DatasetEntry(
        "glyphs",
        "arelu_meta.data.bundled.glyphs:load_glyphs",
        summary="hand-drawn-like letters of 15 scripts, 1x28x28, about 1,000 classes of 20, split by script",
        bundled=True,
    ),
    DatasetEntry(
        "street",
        "arelu_meta.data.bundled.street:load_street",
        summary="digits in many fonts on cluttered colour backgrounds, 3x32x32, 10,000 to train and 4,000 to test",
        bundled=True,
    ),
    DatasetEntry(
        "phantom",
        "arelu_meta.data.bundled.phantom:load_phantom",
        summary="brain-scan-like slices with lesion masks, 3x64x64, 30 patients of 12 slices, split by patient",
        bundled=True,
    ),
)


def names() -> list[str]:
    """Names of all registered sets."""
    return _REGISTRY.names()


def entries() -> list[DatasetEntry]:
    """All registered sets with their summaries."""
    return list(_REGISTRY)


def load(name: str | Path, *, root: str | Path | None = None, **options: object) -> "ImageSet":
    """Read a registered set by name, or your own: a folder, an `.npz` or `package.module:function` (see `own.py`).

    `root` is the data root of sets that are not bundled; `options` are those of the set's own reader, such as
    `rotations=True` of omniglot or `image_size=64` of a folder.
    """
    name = str(name)
    if name in _REGISTRY:
        entry = _REGISTRY[name]
        reader = entry.load()
        options |= {} if entry.bundled else {"root": root}
    else:
        reader = _own_reader(name)
    known = inspect.signature(reader).parameters
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, known)
    images: ImageSet = reader(**options)
    return images


def _own_reader(name: str) -> Callable[..., Any]:
    from arelu_meta.data.files.own import is_target, load_own

    if not (os.path.exists(os.path.expanduser(name)) or is_target(name)):
        if name.endswith(".npz") or os.path.basename(name) != name:
            raise InputError(f"no file or folder {name!r}; check the path, or name a set: {', '.join(names())}")
        raise unknown("dataset", name, names())
    return partial(load_own, name)


def register(
    name: str, *, summary: str = "", bundled: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that returns an `ImageSet` under a name of your own."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _REGISTRY.add(DatasetEntry(name, function, summary=summary, bundled=bundled))
        return function

    return add
