"""Sets that need no download: scikit-learn's digits, here, and drawn ones, with the fonts and the noise they share."""

import base64
import hashlib
import importlib.metadata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import ImageFont
from scipy import ndimage

from arelu_meta.data.imageset import ImageSet, Provenance

DIGITS_SIZE = 28


def load_digits() -> ImageSet:
    """Read the 1,797 handwritten digits of scikit-learn (Alpaydin and Kaynak, UCI, 1998), 1x28x28, ten classes.

    They are 8x8 with 17 grey levels; here they are enlarged so that networks made for MNIST take them as they are.
    """
    images, labels, names = _enlarged_digits()
    return ImageSet(
        name="digits",
        images=images.clone(),  # whoever writes into one set does not change the next
        labels=labels.clone(),
        class_names=names,
        provenance=Provenance(source="scikit-learn load_digits", verified=True),
    )


@cache
def _enlarged_digits() -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...]]:
    """Images (1797, 1, 28, 28), labels and names; kept: cells of a comparison and tests load them many times."""
    from sklearn.datasets import load_digits as load_from_sklearn

    bunch = load_from_sklearn()
    small = torch.from_numpy(bunch.images).float().unsqueeze(1) * (255 / 16)  # (N, 1, 8, 8), levels 0..16
    images = F.interpolate(small, size=(DIGITS_SIZE, DIGITS_SIZE), mode="bilinear", align_corners=False)
    labels = torch.from_numpy(bunch.target).long()
    return images.round().to(torch.uint8), labels, tuple(str(name) for name in bunch.target_names)


def font_path(name: str) -> Path:
    """File of a font inside matplotlib by its name without ending, such as `DejaVuSans`."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


@cache
def open_font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Open a font for drawing; the basic layout engine is the one that every build of Pillow has."""
    return ImageFont.truetype(font_path(name), size, layout_engine=ImageFont.Layout.BASIC)


def font_provenance(names: Iterable[str]) -> Provenance:
    """Hash the fonts a set is drawn from; verified when each is what the record of the matplotlib wheel says."""
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in map(font_path, names)}
    published = {}  # the RECORD of a wheel holds SHA-256 sums in URL-safe base 64
    for file in importlib.metadata.files("matplotlib") or ():
        if file.suffix == ".ttf" and file.hash is not None and file.hash.mode == "sha256":
            published[file.name] = base64.urlsafe_b64decode(file.hash.value + "=").hex()
    return Provenance(
        source=f"drawn from the fonts of matplotlib {importlib.metadata.version('matplotlib')}",
        verified=all(published.get(name) == sha for name, sha in files.items()),
        files=files,
    )


def smooth_noise(random: np.random.Generator, shape: tuple[int, ...], coarse: int, fine: int) -> NDArray[np.float64]:
    """Draw independent fields (*shape, fine, fine), unit normal on a `coarse` x `coarse` grid and smooth between."""
    up = _interpolation(coarse, fine)
    return np.asarray(up @ random.standard_normal((*shape, coarse, coarse)) @ up.T)


@cache
def _interpolation(coarse: int, fine: int) -> NDArray[np.float64]:
    """Matrix (fine, coarse) of the cubic interpolation of `coarse` values at `fine` places."""
    return np.stack([ndimage.zoom(row, fine / coarse, order=3, mode="nearest") for row in np.eye(coarse)], axis=1)
