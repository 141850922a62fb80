"""Decode image files (PNG, JPEG, TIFF, ...) into one uint8 tensor."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arelu_meta.errors import InputError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
GREY_MODES = frozenset({"1", "L"})

Convert = Callable[[Image.Image], Image.Image]


def read_image(source: Path | BytesIO, name: str, convert: Convert) -> Tensor:
    """Decode one image file and give what `convert` makes of it, (C, H, W) uint8."""
    try:
        with _opened(source) as picture:
            pixels = np.array(convert(picture), dtype=np.uint8)  # (H, W) or (H, W, C)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{name} is not a readable image ({error}); replace or remove it") from error
    return torch.from_numpy(pixels).unsqueeze(0) if pixels.ndim == 2 else torch.from_numpy(pixels).permute(2, 0, 1)


def read_images(paths: Sequence[Path], *, image_size: int | None = None) -> Tensor:
    """Decode image files of one size: (N, 1, H, W) if all of them are grey, else (N, 3, H, W).

    With `image_size` each is resized to that many pixels square; without it, unequal sizes are an error.
    """
    first: tuple[Path, tuple[int, int]] | None = None
    grey = True
    for path in paths:
        size, mode = _head(path)
        if mode.startswith(("I", "F")):
            raise InputError(f"{path} has more than 8 bits per channel (mode {mode}); convert it to 8-bit grey or RGB")
        first = first or (path, size)
        grey = grey and mode in GREY_MODES
        if image_size is None and size != first[1]:
            raise InputError(
                f"images differ in size: {first[0].name} is {first[1][0]}x{first[1][1]}, {path.name} is "
                f"{size[0]}x{size[1]}; give image_size=, for example {min(*size, *first[1])}"
            )
    if first is None:
        raise InputError("no image files to read; check the folder")
    width, height = first[1] if image_size is None else (image_size, image_size)
    images = torch.empty(len(paths), 1 if grey else 3, height, width, dtype=torch.uint8)

    def convert(picture: Image.Image) -> Image.Image:
        picture = picture.convert("L" if grey else "RGB")
        return picture if picture.size == (width, height) else picture.resize((width, height), Image.Resampling.LANCZOS)

    for row, path in zip(images, paths, strict=True):
        row.copy_(read_image(path, str(path), convert))
    return images


@contextmanager
def _opened(source: Path | BytesIO) -> Iterator[Image.Image]:
    """Open a picture without Pillow's warnings: they are about camera notes, or an error follows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(source) as picture:
            yield picture


def _head(path: Path) -> tuple[tuple[int, int], str]:
    try:
        with _opened(path) as picture:
            return picture.size, picture.mode
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is not a readable image ({error}); replace or remove it") from error
