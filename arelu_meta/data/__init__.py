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
from arelu_meta.registry import Entry, Registry, load_attribute

if TYPE_CHECKING:
    from arelu_meta.data.imageset import ImageSet

__all__ = ["DatasetEntry", "entries", "is_local", "load", "names", "register"]


@dataclass(frozen=True)
class DatasetEntry(Entry):
    """A named image set. Bundled ones come with the dependencies; the others are looked for under a data root.

    `local` names the function that tells whether a data root (a `Path`) holds the set.
    """

    bundled: bool = False
    local: str = ""


def _entry(name: str, module: str, summary: str) -> DatasetEntry:
    """Describe the set that `load_NAME` of a module of `bundled` or of `readers` reads."""
    bundled = module.startswith("bundled")
    local = "" if bundled else f"arelu_meta.data.{module}:{name.upper()}.is_local"
    return DatasetEntry(name, f"arelu_meta.data.{module}:load_{name}", summary, bundled=bundled, local=local)


_REGISTRY = Registry[DatasetEntry]("dataset")
_REGISTRY.add(
    _entry("digits", "bundled", "1,797 handwritten digits of scikit-learn, 1x28x28, 10 classes"),
    _entry("mnist", "readers.mnist", "70,000 handwritten digits, 1x28x28, 10 classes"),
    _entry("fashion_mnist", "readers.mnist", "70,000 clothes, 1x28x28, 10 classes"),
    _entry("svhn", "readers.svhn", "99,289 house number digits, 3x32x32, 10 classes"),
    _entry("cifar10", "readers.cifar", "60,000 photographs, 3x32x32, 10 classes"),
    _entry("cifar100", "readers.cifar", "60,000 photographs, 3x32x32, 100 classes"),
    _entry("omniglot", "readers.omniglot", "32,460 drawings, 1x28x28, 1,623 characters"),
    _entry("lgg", "readers.lgg", "3,929 MRI slices with tumour masks, 3x256x256, 110 patients"),
    _entry(
        "glyphs",
        "bundled.glyphs",
        "hand-drawn-like letters of 15 scripts, 1x28x28, about 1,000 classes of 20, split by script",
    ),
    _entry(
        "street",
        "bundled.street",
        "digits in many fonts on cluttered colour backgrounds, 3x32x32, 10,000 to train and 4,000 to test",
    ),
    _entry(
        "phantom",
        "bundled.phantom",
        "brain-scan-like slices with lesion masks, 3x64x64, 30 patients of 12 slices, split by patient",
    ),
)


def names() -> list[str]:
    """Names of all registered sets."""
    return _REGISTRY.names()


def entries() -> list[DatasetEntry]:
    """All registered sets with their summaries."""
    return list(_REGISTRY)


def load(name: str | Path, *, root: str | Path | None = None, **options: object) -> "ImageSet":
    """Read an image set by name, or your own by path.

    Args:
        name: a registered name (`data.names()`), or your own data: a folder of class folders, a folder with a CSV of
            `filename,label,split`, an `.npz` with `x`, `y` (or `x_train`, `y_train`, `x_test`, `y_test`), or
            `package.module:function` that returns arrays, a torch Dataset or an `ImageSet`.
        root: folder below which published sets are looked for and downloaded to; unless given, `ARELU_META_DATA` or
            the user's cache folder. Bundled sets and your own do not use it.
        **options: of the set's reader, such as `rotations=True` of omniglot or `image_size=64` of a folder.

    Returns:
        The images as uint8 (N, C, H, W) with their labels (N,), not yet split or normalised.

    Raises:
        InputError: an unknown name or option, a file that cannot be read, or a download that failed.

    Example:
        >>> from arelu_meta import data
        >>> data.load("digits").images.shape
        torch.Size([1797, 1, 28, 28])
    """
    name = str(name)
    if name in _REGISTRY:
        entry = _REGISTRY[name]
        reader = entry.load()
        options |= {} if entry.bundled else {"root": root}
    else:
        from arelu_meta.data.files.user_data import load_user_data

        _check_exists(name)
        reader = partial(load_user_data, name)
    known = inspect.signature(reader).parameters
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, known)
    images: ImageSet = reader(**options)
    return images


def is_local(name: str | Path, root: str | Path | None = None) -> bool:
    """Whether `load` would read a set without downloading anything.

    Args:
        name: as for `load`. Bundled sets and your own are local.
        root: as for `load`.

    Returns:
        False where a file of a published set is missing; and of a set that you registered with `bundled=False`, whose
        files are not known here.

    Raises:
        InputError: an unknown name.

    Example:
        >>> from arelu_meta import data
        >>> data.is_local("digits"), data.is_local("cifar10", root="/no/such/folder")
        (True, False)
    """
    name = str(name)
    if name not in _REGISTRY:
        _check_exists(name)
        return True
    entry = _REGISTRY[name]
    if entry.bundled or not entry.local:
        return entry.bundled
    from arelu_meta.data.files import data_root

    return bool(load_attribute(entry.local)(data_root(root)))


def _check_exists(name: str) -> None:
    from arelu_meta.data.files.user_data import is_target

    if not (os.path.exists(os.path.expanduser(name)) or is_target(name)):
        if name.endswith(".npz") or os.path.basename(name) != name:
            raise InputError(f"no file or folder {name!r}; check the path, or name a set: {', '.join(names())}")
        raise unknown("dataset", name, names())


def register(
    name: str, *, summary: str = "", bundled: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that returns an `ImageSet` under a name, for `load` and as `dataset` of specs.

    Args:
        name: a new name.
        summary: one line for the list of sets.
        bundled: False for a function that takes `root`, the folder of published sets.

    Returns:
        A decorator that leaves the function as it is.

    Raises:
        InputError: the name is registered already.

    Example:
        >>> import torch
        >>> from arelu_meta import data
        >>> from arelu_meta.data.imageset import ImageSet
        >>> @data.register("two_squares", summary="a black and a white square")
        ... def two_squares():
        ...     images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 8, 8)
        ...     return ImageSet("two_squares", images, torch.tensor([0, 1]), ("black", "white"))
        >>> data.load("two_squares").class_names
        ('black', 'white')
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _REGISTRY.add(DatasetEntry(name, function, summary=summary, bundled=bundled))
        return function

    return add
