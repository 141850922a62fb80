"""Image sets by name. Listing them imports no torch; `load` reads one.

    from arelu_meta import data
    digits = data.load("digits")

A new set is one file with a function that returns an `ImageSet`, and one line here. One of your own is a path, a
function (`package.module:function`, the function itself, `@data.register("mine")`), or an entry point of a package in
the group `arelu_meta.datasets` (docs/extending.md).
"""

import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from arelu_meta.errors import InputError
from arelu_meta.reading import parsing
from arelu_meta.registry import Entry, Registry, check_accepts, load_attribute, parameters_of, unknown_part
from arelu_meta.trust import TORCHVISION, is_target

if TYPE_CHECKING:
    from arelu_meta.data.imageset import ImageSet

Dataset: TypeAlias = "str | Path | Callable[..., Any]"

__all__ = ["Dataset", "DatasetEntry", "check_options", "entries", "is_local", "load", "names", "register"]


@dataclass(frozen=True)
class DatasetEntry(Entry):
    """A named image set. Bundled ones come with the dependencies; the others are looked for under a data root.

    `local` names the function that tells whether a data root (a `Path`) holds the set. `shape` is that of an image,
    (channels, height, width), where it is known before the set is read.
    """

    bundled: bool | None = None
    """None: as its function says, which takes `root` or does not"""
    local: str = ""
    shape: tuple[int, int, int] | None = None
    classes: int = 0
    """how many classes it has; 0 where that is not known before it is read"""

    def takes_root(self) -> bool:
        """Whether its function takes the folder of published sets."""
        return "root" in parameters_of(self.load())[0] if self.bundled is None else not self.bundled


def _entry(name: str, module: str, shape: tuple[int, int, int], classes: int, summary: str) -> DatasetEntry:
    """Describe the set that `load_NAME` of a module of `bundled` or of `readers` reads."""
    bundled = module.startswith("bundled")
    local = "" if bundled else f"arelu_meta.data.{module}:{name.upper()}.is_local"
    target = f"arelu_meta.data.{module}:load_{name}"
    return DatasetEntry(name, target, summary, bundled=bundled, local=local, shape=shape, classes=classes)


_REGISTRY = Registry("dataset", DatasetEntry, group="arelu_meta.datasets")
_REGISTRY.add(
    _entry("digits", "bundled", (1, 28, 28), 10, "1,797 handwritten digits of scikit-learn, 1x28x28, 10 classes"),
    _entry("mnist", "readers.mnist", (1, 28, 28), 10, "70,000 handwritten digits, 1x28x28, 10 classes"),
    _entry("fashion_mnist", "readers.mnist", (1, 28, 28), 10, "70,000 clothes, 1x28x28, 10 classes"),
    _entry("svhn", "readers.svhn", (3, 32, 32), 10, "99,289 house number digits, 3x32x32, 10 classes"),
    _entry("cifar10", "readers.cifar", (3, 32, 32), 10, "60,000 photographs, 3x32x32, 10 classes"),
    _entry("cifar100", "readers.cifar", (3, 32, 32), 100, "60,000 photographs, 3x32x32, 100 classes"),
    _entry(
        "cifar_fs",
        "readers.cifar_few_shot",
        (3, 32, 32),
        100,
        "CIFAR-100 for episodes, 3x32x32, 100 classes, split 64/16/20",
    ),
    _entry(
        "fc100",
        "readers.cifar_few_shot",
        (3, 32, 32),
        100,
        "CIFAR-100 for episodes, 3x32x32, 100 classes, split 60/20/20 by superclass",
    ),
    _entry("omniglot", "readers.omniglot", (1, 28, 28), 1623, "32,460 drawings, 1x28x28, 1,623 characters"),
    _entry("lgg", "readers.lgg", (3, 256, 256), 2, "3,929 MRI slices with tumour masks, 3x256x256, 110 patients"),
    _entry(
        "glyphs",
        "bundled.glyphs",
        (1, 28, 28),
        1006,
        "hand-drawn-like letters of 15 scripts, 1x28x28, about 1,000 classes of 20, split by script",
    ),
    _entry(
        "street",
        "bundled.street",
        (3, 32, 32),
        10,
        "digits in many fonts on cluttered colour backgrounds, 3x32x32, 10,000 to train and 4,000 to test",
    ),
    _entry(
        "phantom",
        "bundled.phantom",
        (3, 64, 64),
        2,
        "brain-scan-like slices with lesion masks, 3x64x64, 30 patients of 12 slices, split by patient",
    ),
    _entry(
        "sinusoid",
        "bundled.sinusoid",
        (1, 1, 1),
        3200,
        "regression: 3,200 sine waves of 50 points each, 1x1x1, with real targets, split by function",
    ),
)


def names() -> list[str]:
    """Names of all registered sets."""
    return _REGISTRY.names()


def entries() -> list[DatasetEntry]:
    """All registered sets with their summaries."""
    return list(_REGISTRY)


def load(name: Dataset, *, root: str | Path | None = None, **options: object) -> "ImageSet":
    """Read an image set by name, or your own.

    Args:
        name: a registered name (`data.names()`), a classification set of torchvision (`torchvision:Flowers102`), or
            your own data: a folder of class folders, a folder with a CSV of `filename,label,split`, an `.npz` with `x`,
            `y` (or `x_train`, `y_train`, `x_test`, `y_test`), images or vectors, or a function, itself or as
            `package.module:function`, that returns arrays, a torch Dataset or an `ImageSet`.
        root: folder below which published sets are looked for and downloaded to; unless given, `ARELU_META_DATA` or
            the user's cache folder. Bundled sets do not use it; a function of yours does if it takes `root`.
        **options: of the set's reader, such as `rotations=True` of omniglot, `image_size=64` of a folder, or what a
            function of yours takes.

    Returns:
        The images as uint8 (N, C, H, W), or vectors as float32 (N, D, 1, 1), with their labels (N,), not yet split or
        normalised.

    Raises:
        InputError: an unknown name or option, a file that cannot be read, or a download that failed.

    Example:
        >>> from arelu_meta import data
        >>> data.load("digits").images.shape
        torch.Size([1797, 1, 28, 28])
    """
    from arelu_meta.data.files.user_data import as_image_set, load_user_data

    check_options(name, options)
    entry = _function(name)
    if entry is None:
        return load_user_data(str(name), **options)  # type: ignore[arg-type]  # `check_options` knows what it takes
    if entry.takes_root() and (root is not None or entry.bundled is False):  # a function of yours has a default
        options["root"] = root
    reader = entry.load()
    with nullcontext() if entry.own_code else parsing(entry.name, remedy="replace its files"):
        result = reader(**options)
    return as_image_set(result, entry.target if isinstance(entry.target, str) else entry.name)


def check_options(name: Dataset, options: Iterable[str]) -> None:
    """Refuse what `load` cannot read, as far as that is known before it is read.

    Args:
        name: as for `load`
        options: names of options

    Raises:
        InputError: an unknown name, a path that does not exist, a function that cannot be imported or that has no such
            option.

    Example:
        >>> from arelu_meta import data
        >>> data.check_options("omniglot", ["rotations"])
    """
    entry = _function(name)
    if entry is not None:
        check_accepts(entry.name, entry.load(), options, given=("root",) if entry.takes_root() else ())
        return
    from arelu_meta.data.files.user_data import load_user_data

    check_accepts(str(name), partial(load_user_data, str(name)), options)


def is_local(name: Dataset, root: str | Path | None = None) -> bool:
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
    from arelu_meta.data.files import data_root

    entry = _function(name)
    if str(name).startswith(TORCHVISION):
        from arelu_meta.data.readers import torchvision_sets

        return torchvision_sets.is_local(str(name).removeprefix(TORCHVISION), data_root(root))
    if entry is None or str(name) not in _REGISTRY:
        return True
    if not entry.local:
        return not entry.takes_root()
    return bool(load_attribute(entry.local)(data_root(root)))


def is_path(name: Dataset) -> bool:
    """Whether `load` takes a name for the path of a file or folder, which need not exist any more.

    Args:
        name: as for `load`.

    Example:
        >>> from arelu_meta import data
        >>> data.is_path("photos"), data.is_path("digits"), data.is_path("mine:photos")
        (True, False, False)
    """
    if callable(name) or str(name) in _REGISTRY:
        return False
    return not is_target(str(name)) or os.path.exists(os.path.expanduser(str(name)))


def _function(name: Dataset) -> DatasetEntry | None:
    """Give the entry of the function that makes a set, or None for the path of a file or folder that exists."""
    if callable(name) or str(name) in _REGISTRY:
        return _REGISTRY.find(name if callable(name) else str(name))
    name = str(name)
    if os.path.exists(os.path.expanduser(name)):
        return None
    if name.startswith(TORCHVISION):
        from arelu_meta.data.readers.torchvision_sets import check_torchvision, load_torchvision

        check_torchvision(name.removeprefix(TORCHVISION))
        return DatasetEntry(name, partial(load_torchvision, name.removeprefix(TORCHVISION)), bundled=False)
    if is_target(name):
        return _REGISTRY.find(name)
    if name.endswith(".npz") or os.path.basename(name) != name:
        raise InputError(f"no file or folder {name!r}; check the path, or name a set: {', '.join(names())}")
    raise unknown_set(name)


def check_path(name: Dataset) -> None:
    """Refuse a path (`is_path`) that does not exist."""
    if is_path(name):
        _function(name)


def unknown_set(name: str) -> InputError:
    """Build the error for a word that is neither the name of a set nor that of a folder."""
    error = unknown_part("dataset", name, names())
    return error if "did you mean" in str(error) else InputError(f"{error}; nor is a folder of that name here")


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
