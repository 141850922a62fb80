"""`cifar10` and `cifar100` (Krizhevsky 2009), as the publisher's python batches or as the binary version.

    cifar-10-batches-py/{data_batch_1..5,test_batch,batches.meta}     cifar-100-python/{train,test,meta}
    cifar-10-batches-bin/{data_batch_1..5,test_batch}.bin             cifar-100-binary/{train,test}.bin

The root itself is looked into as well. Where some batches are missing, the others are used, as an unverified set.

The python batches are pickles, and Python's unpickler calls whatever the file names. `read_plain_pickle` gives the file
only stand-ins of its own, so that not even numpy's constructors run on what a stranger wrote.
"""

import io
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arelu_meta.data.files import checksums, data_root
from arelu_meta.data.files.download import PublishedFile, download_missing, unpack
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers import PublishedSet, concatenated, verified
from arelu_meta.errors import InputError, first_line
from arelu_meta.reading import check_file_size, check_pickle, open_regular, parsing, read_text, shown

MIRRORS = ("https://www.cs.toronto.edu/~kriz",)
PIXELS = 3 * 32 * 32
# What a plain pickle may hold.
ELEMENTS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f4", "f8", "b1"}
ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
BUFFER_MODULES = ("numpy.core.numeric", "numpy._core.numeric")


@dataclass(frozen=True)
class CifarSet(PublishedSet):
    """CIFAR-10 or CIFAR-100: `files` is the archive, `train` and `test` map its python batches to their MD5."""

    train: dict[str, str]
    test: dict[str, str]
    meta: str
    meta_md5: str
    names_key: str
    names_file: str  # beside the binary version
    labels_key: str
    label_bytes: int  # in a record of the binary version, the last of them is the label
    class_names: tuple[str, ...]  # used where the file that lists them is missing

    def batches(self, folder: Path) -> dict[str, Path]:
        """The batches that are in a folder, python or binary."""
        candidates = ((batch, folder / f"{batch}{end}") for batch in (self.train | self.test) for end in (".bin", ""))
        return {batch: path for batch, path in candidates if path.is_file()}

    def folder(self, root: Path) -> Path | None:
        """The first of the folders that holds a batch."""
        return next((root / folder for folder in self.folders if self.batches(root / folder)), None)

    def is_local(self, root: Path) -> bool:
        """Whether there are batches, or the archive of all."""
        return self.folder(root) is not None or (root / self.files[0].name).is_file()

    def obtain(self, root: Path) -> Path:
        """Return the folder of the batches; where there is none, download the archive (if missing) and unpack it."""
        folder, archive = self.folder(root), self.files[0]
        if folder is None:
            missing = [] if (root / archive.name).exists() else [archive]
            download_missing(self.name, missing, root, substitute=self.substitute)
            folder = unpack(root / archive.name, root, self.folders[0])
        return folder


CIFAR10 = CifarSet(
    name="cifar10",
    folders=("cifar-10-batches-py", "cifar-10-batches-bin", "."),
    files=(PublishedFile("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", MIRRORS),),
    substitute="street",
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
    meta="batches.meta",
    meta_md5="5ff9c542aee3614f3951f8cda6e48888",
    names_key="label_names",
    names_file="batches.meta.txt",
    labels_key="labels",
    label_bytes=1,
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)
CIFAR100 = CifarSet(
    name="cifar100",
    folders=("cifar-100-python", "cifar-100-binary", "."),
    files=(PublishedFile("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", MIRRORS),),
    substitute="street",
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    meta="meta",
    meta_md5="7973b15100ade9c7d40fb424638fde48",
    names_key="fine_label_names",
    names_file="fine_label_names.txt",
    labels_key="fine_labels",
    label_bytes=2,  # coarse, fine
    class_names=tuple(f"class {label}" for label in range(100)),
)


def load_cifar10(*, root: str | Path | None = None) -> ImageSet:
    """Read CIFAR-10: 50,000 `train` and 10,000 `test` images of 3x32x32, ten classes."""
    return _load(CIFAR10, data_root(root))


def load_cifar100(*, root: str | Path | None = None) -> ImageSet:
    """Read CIFAR-100: 50,000 `train` and 10,000 `test` images of 3x32x32, a hundred fine classes."""
    return _load(CIFAR100, data_root(root))


def _load(cifar: CifarSet, root: Path) -> ImageSet:
    folder = cifar.obtain(root)
    paths = cifar.batches(folder)
    files = {
        subset: [_read_batch(cifar, paths[batch]) for batch in batches if batch in paths]
        for subset, batches in (("train", cifar.train), ("test", cifar.test))
    }
    images = concatenated(cifar.name, files, _class_names(cifar, folder))
    meta = [path for path in (folder / cifar.meta,) if path.is_file()]
    return verified(
        images,
        source=MIRRORS[0],
        read={path: checksums(path) for path in (*paths.values(), *meta)},
        published=cifar.train | cifar.test | {cifar.meta: cifar.meta_md5},
        missing=[batch for batch in cifar.train | cifar.test if batch not in paths],
    )


def _read_batch(cifar: CifarSet, path: Path) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels (N,) of a batch; binary: records of label bytes and 3,072 pixels, red first."""
    if path.suffix == ".bin":
        with parsing(path), open_regular(path) as stream:
            check_file_size(path, stream)
            content = np.frombuffer(stream.read(), np.uint8)
        record = cifar.label_bytes + PIXELS
        if len(content) == 0 or len(content) % record:
            raise InputError(f"{path} is {len(content)} bytes, not a multiple of {record}; replace the file")
        rows = content.reshape(-1, record)
        data: Any
        data, labels = rows[:, cifar.label_bytes :], rows[:, cifar.label_bytes - 1].astype(np.int64)
    else:
        batch = read_plain_pickle(path)
        data, listed = batch.get("data"), batch.get(cifar.labels_key)
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (PIXELS,):
            raise InputError(f"{path}: 'data' is not a uint8 array (N, {PIXELS}); is it a batch of {cifar.name}?")
        if not isinstance(listed, list) or len(listed) != len(data) or not all(isinstance(y, int) for y in listed):
            wanted = f"a list of {len(data)} numbers"
            raise InputError(f"{path}: {cifar.labels_key!r} is not {wanted}; is it a batch of {cifar.name}?")
        with parsing(path):
            labels = np.array(listed, np.int64)
    return torch.from_numpy(data.copy()).view(-1, 3, 32, 32), torch.from_numpy(labels)


def _class_names(cifar: CifarSet, folder: Path) -> tuple[str, ...]:
    """Read the names beside the batches: the python version has a pickle, the binary one a text file."""
    names: object = cifar.class_names
    if (folder / cifar.meta).is_file():
        names = read_plain_pickle(folder / cifar.meta).get(cifar.names_key)
    elif (folder / cifar.names_file).is_file():
        names = read_text(folder / cifar.names_file).split()
    if not isinstance(names, list | tuple) or len(names) != len(cifar.class_names):
        raise InputError(
            f"{folder}: the list of class names is not {len(cifar.class_names)} long; delete it to number them"
        )
    return tuple(map(str, names))


class _Dtype:
    """Stand-in for `numpy.dtype`: the code of a plain number type and its byte order."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in ELEMENTS:
            raise pickle.UnpicklingError(f"array elements of type {code!r} are not plain numbers")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1] if state[1] in ("<", ">") else "="


class _Array:
    """Stand-in for `numpy.ndarray`: takes the state that numpy writes, (version, shape, dtype, fortran, bytes)."""

    def __init__(self, *_: object, state: tuple[Any, ...] = ()) -> None:
        self.array = np.empty(0)
        if state:
            self.__setstate__(state)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype):
            raise pickle.UnpicklingError("an array without a plain number type")
        content = content.encode("latin1") if isinstance(content, str) else content  # Python 2 wrote bytes as text
        array = np.frombuffer(content, np.dtype(dtype.order + dtype.code))
        if len(array) != math.prod(shape):
            raise pickle.UnpicklingError(f"an array of {len(array)} elements cannot have the shape {shape}")
        self.array = array.reshape(shape, order="F" if fortran else "C")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if (name == "_reconstruct" and module in ARRAY_MODULES) or (module, name) == ("numpy", "ndarray"):
            return _Array
        if name == "_frombuffer" and module in BUFFER_MODULES:  # protocol 5, Python's default from 3.14 on
            return lambda content, kind, shape, order: _Array(state=(1, shape, kind, order == "F", bytes(content)))
        if (module, name) == ("numpy", "dtype"):
            return _Dtype
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in protocol 2
            # A new function each time: a pickle could leave attributes on a lasting one.
            return lambda text, _encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it names {f'{module}.{name}'!r}")


def read_plain_pickle(path: Path) -> dict[str, Any]:
    """Read a pickled dict whose values are arrays, lists, strings and numbers."""
    try:
        with open_regular(path) as stream:
            check_file_size(path, stream)
            text = stream.read()
        check_pickle(text, path)
        content = _PlainUnpickler(io.BytesIO(text), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise anything
        reason = shown(first_line(error)).partition(";")[0]
        raise InputError(
            f"{path} is refused: not a plain pickle of arrays ({reason}); get it from its publisher"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, not a dict; get it from its publisher")
    keys = [key.decode("latin1") if isinstance(key, bytes) else str(key) for key in content]
    values = [value.array if isinstance(value, _Array) else value for value in content.values()]
    return dict(zip(keys, values, strict=True))
