"""`svhn`: street view house numbers, cropped 32x32 (Netzer et al. 2011), in the publisher's Matlab files.

    svhn/{train,test}_32x32.mat

`SVHN/` and the root itself are looked into as well. The publisher writes the digit zero as 10.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from arelu_meta.data.files import checksums, data_root, mat
from arelu_meta.data.files.download import PublishedFile
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.readers import PublishedSet, concatenated, verified
from arelu_meta.errors import InputError

MIRRORS = ("http://ufldl.stanford.edu/housenumbers",)
SVHN = PublishedSet(
    name="svhn",
    folders=("svhn", "SVHN", "."),
    files=(
        PublishedFile("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", MIRRORS),
        PublishedFile("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", MIRRORS),
    ),
    substitute="street",
)


def load_svhn(*, root: str | Path | None = None) -> ImageSet:
    """Read SVHN: 73,257 `train` and 26,032 `test` digits of 3x32x32."""
    folder = SVHN.obtain(data_root(root))
    paths = [folder / file.name for file in SVHN.files]
    train, test = map(read_mat, paths)
    images = concatenated("svhn", {"train": [train], "test": [test]}, tuple("0123456789"))
    published = {file.name: file.md5 for file in SVHN.files}
    return verified(images, source=MIRRORS[0], read={path: checksums(path) for path in paths}, published=published)


def read_mat(path: Path) -> tuple[Tensor, Tensor]:
    """Read one file: X (32, 32, 3, N) uint8 to images (N, 3, 32, 32); y (N, 1) in 1..10 to labels (N,) in 0..9."""
    content = mat.read_mat(path, ("X", "y"))
    if len(content) < 2:
        raise InputError(f"{path} is damaged (no X or no y in it); delete it and load the set again")
    x, y = content["X"], content["y"].reshape(-1)
    if y.dtype.kind not in "iu" and not np.array_equal(y, np.rint(y)):
        raise InputError(f"{path}: labels are {y.dtype}, not whole numbers; replace the file")
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[2:] != (3, len(y)):
        raise InputError(
            f"{path}: X is {x.dtype} {x.shape} for {len(y)} labels, not uint8 (H, W, 3, N); replace the file"
        )
    if len(y) and (y.min() < 1 or y.max() > 10):
        wrong = int(y.min()) if y.min() < 1 else int(y.max())
        raise InputError(f"{path}: label {wrong} is outside 1..10 (10 is the digit zero); replace the file")
    images = torch.from_numpy(np.ascontiguousarray(x.transpose(3, 2, 0, 1)))  # (N, 3, H, W)
    return images, torch.from_numpy(y.astype(np.int64) % 10)
