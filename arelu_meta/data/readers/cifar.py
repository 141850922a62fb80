"""`cifar10` and `cifar100` (Krizhevsky 2009), as the publisher's python batches or as the binary version.

    cifar-10-batches-py/{data_batch_1..5,test_batch,batches.meta}     cifar-100-python/{train,test,meta}
    cifar-10-batches-bin/{data_batch_1..5,test_batch}.bin             cifar-100-binary/{train,test}.bin

The root itself is looked into as well. Where some batches are missing, the others are used, as an unverified set.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from arelu_meta.data.files.archive import unpack
from arelu_meta.data.files.checksum import checksums, verified
from arelu_meta.data.files.download import Published, obtain
from arelu_meta.data.files.plainpickle import read_plain_pickle
from arelu_meta.data.files.root import data_root, existing_folder
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError

MIRRORS = ("https://www.cs.toronto.edu/~kriz",)
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Family:
    """One of the two sets. `train` and `test` map batch files to the MD5 of the unpacked python batch."""

    name: str
    folder: str
    binary_folder: str
    archive: Published
    train: dict[str, str]
    test: dict[str, str]
    meta: str
    meta_md5: str
    names_key: str
    labels_key: str
    label_bytes: int  # in a record of the binary version, the last of them is the label
    class_names: tuple[str, ...]  # used where the file that lists them is missing

    @property
    def batches(self) -> dict[str, str]:
        """All batches with their sums."""
        return self.train | self.test


CIFAR10 = Family(
    name="cifar10",
    folder="cifar-10-batches-py",
    binary_folder="cifar-10-batches-bin",
    archive=Published("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", MIRRORS),
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
    labels_key="labels",
    label_bytes=1,
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)
CIFAR100 = Family(
    name="cifar100",
    folder="cifar-100-python",
    binary_folder="cifar-100-binary",
    archive=Published("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", MIRRORS),
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    meta="meta",
    meta_md5="7973b15100ade9c7d40fb424638fde48",
    names_key="fine_label_names",
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


def _load(family: Family, root: Path) -> ImageSet:
    binary = {f"{batch}.bin": batch for batch in family.batches}
    folder = existing_folder(root, (family.folder, family.binary_folder, "."), (*family.batches, *binary))
    folder = folder or _download(family, root)
    local = {batch: _local(folder, batch) for batch in family.batches}
    paths = {batch: path for batch, path in local.items() if path is not None}
    images, labels, parts, start = [], [], {}, 0
    for part, batches in (("train", family.train), ("test", family.test)):
        read = [_read_batch(family, paths[batch]) for batch in batches if batch in paths]
        images += [x for x, _ in read]
        labels += [y for _, y in read]
        count = sum(len(y) for _, y in read)
        if count:
            parts[part] = torch.arange(start, start + count)
        start += count
    read_set = ImageSet(
        name=family.name,
        images=torch.cat(images),
        labels=torch.cat(labels),
        class_names=_class_names(family, folder),
        parts=parts,
    )
    files = [*paths.values(), *(path for path in (folder / family.meta,) if path.is_file())]
    return verified(
        read_set,
        source=MIRRORS[0],
        found={path: checksums(path) for path in files},
        published={file: frozenset({md5}) for file, md5 in (family.batches | {family.meta: family.meta_md5}).items()},
        missing=[batch for batch in family.batches if batch not in paths],
    )


def _download(family: Family, root: Path) -> Path:
    obtain(family.name, [family.archive], root, bundled="street")
    return unpack(root / family.archive.name, root, family.folder)


def _local(folder: Path, batch: str) -> Path | None:
    return next((path for path in (folder / batch, folder / f"{batch}.bin") if path.is_file()), None)


def _read_batch(family: Family, path: Path) -> tuple[Tensor, Tensor]:
    return _read_binary(family, path) if path.suffix == ".bin" else _read_python(family, path)


def _read_python(family: Family, path: Path) -> tuple[Tensor, Tensor]:
    batch = read_plain_pickle(path)
    data, labels = batch.get("data"), batch.get(family.labels_key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
        raise InputError(f"{path}: 'data' is not a uint8 array (N, {PIXELS}); is it a batch of {family.name}?")
    if not isinstance(labels, list) or len(labels) != len(data) or not all(isinstance(label, int) for label in labels):
        raise InputError(
            f"{path}: {family.labels_key!r} is not a list of {len(data)} numbers; is it a batch of {family.name}?"
        )
    return torch.from_numpy(data.copy()).view(-1, 3, 32, 32), torch.tensor(labels, dtype=torch.int64)


def _read_binary(family: Family, path: Path) -> tuple[Tensor, Tensor]:
    """Records of label bytes and 3,072 pixels, red plane first."""
    content = np.fromfile(path, np.uint8)
    record = family.label_bytes + PIXELS
    if len(content) == 0 or len(content) % record:
        raise InputError(f"{path} is {len(content)} bytes, not a multiple of {record}; replace the file")
    rows = content.reshape(-1, record)
    images = torch.from_numpy(rows[:, family.label_bytes :].copy()).view(-1, 3, 32, 32)
    return images, torch.from_numpy(rows[:, family.label_bytes - 1].astype(np.int64))


def _class_names(family: Family, folder: Path) -> tuple[str, ...]:
    """Read the names beside the batches: the python version has a pickle, the binary one a text file."""
    text = folder / f"{family.meta}.txt" if family is CIFAR10 else folder / "fine_label_names.txt"
    names: object = family.class_names
    if (folder / family.meta).is_file():
        names = read_plain_pickle(folder / family.meta).get(family.names_key)
    elif text.is_file():
        names = text.read_text().split()
    if not isinstance(names, list | tuple) or len(names) != len(family.class_names):
        raise InputError(
            f"{folder}: the list of class names is not {len(family.class_names)} long; delete it to number them"
        )
    return tuple(map(str, names))
