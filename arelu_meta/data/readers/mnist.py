"""`mnist` (LeCun, Cortes, Burges 1998) and `fashion_mnist` (Xiao, Rasul, Vollgraf 2017), in the publishers' idx files.

    MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]             FashionMNIST/raw/...

The folders are torchvision's; `mnist/`, `fashion_mnist/` and the root itself are looked into as well.
"""

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from arelu_meta.data.files.checksum import checksums, verified
from arelu_meta.data.files.download import Published, obtain
from arelu_meta.data.files.root import data_root, existing_folder
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError

UNSIGNED_BYTE = 0x08  # the idx code of the only element type these sets use


@dataclass(frozen=True)
class Family:
    """One set of the MNIST family: four files, images and labels of the train and of the test part."""

    name: str
    folders: tuple[str, ...]
    mirrors: tuple[str, ...]
    md5: tuple[str, str, str, str]  # of the .gz files, as published
    plain_md5: tuple[str, ...]  # of the same files unpacked: of MNIST computed from files with the published sums
    class_names: tuple[str, ...]

    FILES = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )

    def published(self) -> list[Published]:
        """The four files to download."""
        return [Published(f"{name}.gz", md5, self.mirrors) for name, md5 in zip(self.FILES, self.md5, strict=True)]

    def checksums(self) -> dict[str, frozenset[str]]:
        """The sums that each file may have, packed or not."""
        packed = {f"{name}.gz": frozenset({md5}) for name, md5 in zip(self.FILES, self.md5, strict=True)}
        return packed | {name: frozenset({md5}) for name, md5 in zip(self.FILES, self.plain_md5, strict=False)}


MNIST = Family(
    name="mnist",
    folders=("MNIST/raw", "mnist", "."),
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
    md5=(
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    plain_md5=(
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    class_names=tuple("0123456789"),
)
FASHION_MNIST = Family(
    name="fashion_mnist",
    folders=("FashionMNIST/raw", "fashion_mnist", "."),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
    md5=(
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    plain_md5=(),
    class_names=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
)


def load_mnist(*, root: str | Path | None = None) -> ImageSet:
    """Read MNIST: 60,000 `train` and 10,000 `test` digits of 1x28x28."""
    return _load(MNIST, data_root(root), other=FASHION_MNIST)


def load_fashion_mnist(*, root: str | Path | None = None) -> ImageSet:
    """Read Fashion-MNIST: 60,000 `train` and 10,000 `test` pieces of clothing of 1x28x28."""
    return _load(FASHION_MNIST, data_root(root), other=MNIST)


def _load(family: Family, root: Path, *, other: Family) -> ImageSet:
    names = tuple(f"{name}{suffix}" for name in family.FILES for suffix in (".gz", ""))
    folder = existing_folder(root, family.folders, names) or root / family.folders[0]
    absent = [file for file in family.published() if not (folder / file.name.removesuffix(".gz")).exists()]
    obtain(family.name, absent, folder, bundled="digits")
    found = {path: checksums(path) for path in (_local(folder, name) for name in family.FILES)}
    foreign = [path.name for path, sums in found.items() if sums.md5 in other.md5 + other.plain_md5]
    if foreign:
        raise InputError(f"{folder / foreign[0]} belongs to {other.name}; load that, or move it out of the way")
    train_x, train_y = _read_part(*list(found)[:2])
    test_x, test_y = _read_part(*list(found)[2:])
    images = ImageSet(
        name=family.name,
        images=torch.cat([train_x, test_x]).unsqueeze(1),
        labels=torch.cat([train_y, test_y]),
        class_names=family.class_names,
        parts={"train": torch.arange(len(train_x)), "test": torch.arange(len(test_x)) + len(train_x)},
    )
    return verified(images, source=family.mirrors[0], found=found, published=family.checksums())


def _read_part(images: Path, labels: Path) -> tuple[Tensor, Tensor]:
    x, y = read_idx(images, dims=3), read_idx(labels, dims=1)
    if len(x) != len(y):
        raise InputError(f"{images} holds {len(x)} images, but {labels.name} {len(y)} labels; replace both files")
    return x, y.long()


def _local(folder: Path, name: str) -> Path:
    """Prefer the .gz, for which the publisher gives a checksum."""
    packed = folder / f"{name}.gz"
    return packed if packed.exists() else folder / name


def read_idx(path: Path, *, dims: int) -> Tensor:
    """Read an idx file of unsigned bytes: two zero bytes, type, number of dimensions, sizes (big-endian), elements."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}); delete it and load the set again") from error
    header = 4 + 4 * dims
    if len(content) < header or content[:4] != bytes((0, 0, UNSIGNED_BYTE, dims)):
        raise InputError(f"{path} is not an idx file of {dims}-dimensional bytes; delete it and load the set again")
    shape = struct.unpack(f">{dims}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise InputError(
            f"{path} holds {len(content) - header} elements, not {' x '.join(map(str, shape))} as its head says; "
            f"delete it and load the set again"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy())
