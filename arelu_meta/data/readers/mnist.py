"""`mnist` (LeCun, Cortes, Burges 1998) and `fashion_mnist` (Xiao, Rasul, Vollgraf 2017), in the publishers' idx files.

    MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]             FashionMNIST/raw/...

The folders are torchvision's; `mnist/`, `fashion_mnist/` and the root itself are looked into as well.
"""

import gzip
import math
import os
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from arelu_meta.data.files import checksums, data_root
from arelu_meta.data.files.download import PublishedFile
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers import PublishedSet, concatenated, local_path, verified
from arelu_meta.errors import InputError
from arelu_meta.reading import check_size, open_regular, parsing

UNSIGNED_BYTE = 0x08  # the idx code of the only element type these sets use
MOST_BEHIND = 1 << 20  # bytes that a packed file may have behind its end, or be larger than unpacked
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _published(name: str, folder: str, mirrors: tuple[str, ...], md5: tuple[str, ...]) -> PublishedSet:
    files = tuple(PublishedFile(f"{file}.gz", sum_, mirrors) for file, sum_ in zip(FILES, md5, strict=True))
    return PublishedSet(name, (f"{folder}/raw", name, "."), files, substitute="digits")


MNIST = _published(
    "mnist",
    "MNIST",
    ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
    (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
)
FASHION_MNIST = _published(
    "fashion_mnist",
    "FashionMNIST",
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
)
# Of the files unpacked: of MNIST computed from files with the published sums, of Fashion-MNIST not known.
UNPACKED_MD5 = {
    "mnist": {
        FILES[0]: "6bbc9ace898e44ae57da46a324031adb",
        FILES[1]: "a25bea736e30d166cdddb491f175f624",
        FILES[2]: "2646ac647ad5339dbf082846283269ea",
        FILES[3]: "27ae3e4e09519cfbb04c329615203637",
    },
    "fashion_mnist": {},
}
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def load_mnist(*, root: str | Path | None = None) -> ImageSet:
    """Read MNIST: 60,000 `train` and 10,000 `test` digits of 1x28x28."""
    return _load(MNIST, data_root(root), tuple("0123456789"), other=FASHION_MNIST)


def load_fashion_mnist(*, root: str | Path | None = None) -> ImageSet:
    """Read Fashion-MNIST: 60,000 `train` and 10,000 `test` pieces of clothing of 1x28x28."""
    return _load(FASHION_MNIST, data_root(root), CLOTHES, other=MNIST)


def _load(published: PublishedSet, root: Path, class_names: tuple[str, ...], *, other: PublishedSet) -> ImageSet:
    folder = published.obtain(root)
    paths = [path for file in published.files if (path := local_path(folder, file)) is not None]
    read = {path: checksums(path) for path in paths}
    md5 = {  # of each set's files, packed or not
        each.name: {file.name: file.md5 for file in each.files} | UNPACKED_MD5[each.name] for each in (published, other)
    }
    foreign = [path for path, sums in read.items() if sums.md5 in md5[other.name].values()]
    if foreign:
        raise InputError(f"{foreign[0]} belongs to {other.name}; load that, or move the file elsewhere")
    files = {}
    for subset, (x_path, y_path) in (("train", paths[:2]), ("test", paths[2:])):
        x, y = read_idx(x_path, dims=3), read_idx(y_path, dims=1)
        if len(x) != len(y):
            raise InputError(f"{x_path} holds {len(x)} images, but {y_path.name} {len(y)} labels; replace both files")
        files[subset] = [(x.unsqueeze(1), y.long())]
    images = concatenated(published.name, files, class_names)
    return verified(images, source=published.files[0].mirrors[0], read=read, published=md5[published.name])


def read_idx(path: Path, *, dims: int) -> Tensor:
    """Read an idx file of unsigned bytes: two zero bytes, type, number of dimensions, sizes (big-endian), elements."""
    remedy, size = "delete it and load the set again", 4 + 4 * dims
    with parsing(path, remedy=remedy), open_regular(path) as file:
        packed = os.fstat(file.fileno()).st_size
        stream: gzip.GzipFile | BinaryIO = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        header = stream.read(size)
        if len(header) < size or header[:4] != bytes((0, 0, UNSIGNED_BYTE, dims)):
            raise InputError(f"{path} is not an idx file of {dims}-dimensional bytes; {remedy}")
        shape = struct.unpack(f">{dims}I", header[4:])
        needed = math.prod(shape)
        check_size(path, needed, packed)
        if path.suffix == ".gz" and packed > size + needed + MOST_BEHIND:  # gzip would go through it byte by byte
            raise InputError(f"{path} has {packed} bytes for {needed} elements; {remedy}")
        content = stream.read(needed + 1)  # one more, which must not be there; the checksum of a .gz is after the end
    if len(content) != needed:
        held = "more" if len(content) > needed else str(len(content))
        raise InputError(f"{path} holds {held} elements, not {' x '.join(map(str, shape))} as its head says; {remedy}")
    return torch.from_numpy(np.frombuffer(content, np.uint8).reshape(shape).copy())
