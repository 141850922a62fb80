"""Image files (PNG, JPEG, TIFF, ...) as tensors: one, or many of one shape, decoded by several threads."""

import hashlib
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from arelu_meta.data.files import FOLDER, cached_arrays
from arelu_meta.data.files.plain_jpeg import plain_decoder, read_plain_jpeg
from arelu_meta.data.squares import Resize, squared
from arelu_meta.errors import InputError, first_line
from arelu_meta.reading import check_size, open_regular, shown
from arelu_meta.runtime.hardware import usable_cores

GREY_MODES = frozenset({"1", "L"})
FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")  # Pillow's names; by content
ORIENTATION = 0x0112  # the EXIF tag; 5 to 8 are turned by a quarter
AT_ONCE = 8  # files that a thread is given at a time
MANY = 2000  # files whose heads are worth remembering
REMEDY = "replace or remove it"

Convert = Callable[[Image.Image], Image.Image]


class BrokenImageError(InputError):
    """An image file that cannot be decoded."""


def read_image(source: Path | BytesIO, name: str, convert: Convert) -> Tensor:
    """Decode one image file and return what `convert` makes of it, (C, H, W) uint8."""
    return torch.from_numpy(np.array(_read_pixels(source, name, convert))).permute(2, 0, 1)


def _read_pixels(source: Path | BytesIO, name: str, convert: Convert) -> NDArray[np.uint8]:
    """Decode one image file by Pillow: (H, W, C), not to be written to."""
    with open_image(source, name) as image:
        # Turned as viewers show it; most JPEG files say nothing of that, and are not copied.
        says = image.format != "JPEG" or "exif" in image.info or "xmp" in image.info
        pixels = np.asarray(convert(ImageOps.exif_transpose(image) if says else image), dtype=np.uint8)
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files of one shape that are decoded when they are read: a source of rows.

    Args:
        paths: the files.
        grey: whether all are; then they have one channel, else three.
        size: height and width, that they have or are brought to.
        stamps: size in bytes and time of the last change of each file.
        squares: whether they are made squares when they are read; else they are as they are.
        resize: how they are made squares, see `data.squares`.
    """

    paths: Sequence[Path]
    grey: bool
    size: tuple[int, int]
    stamps: Sequence[tuple[int, int]]
    squares: bool = False
    resize: Resize = "scale"

    place = "image files"
    ready = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Images, channels, height, width."""
        return len(self.paths), 1 if self.grey else 3, *self.size

    @cached_property
    def digest(self) -> str:
        """Digest of names, sizes and times of change, and of the shape and how they are brought to it."""
        made = [self.resize] if self.squares and self.resize != "squash" else []  # which it always was once
        return stamps_digest(self.paths, self.stamps, [self.grey, *self.size, *made])

    @property
    def read_size(self) -> int:
        """Side of the squares that files are scaled to; 0: they are as they are, or a part of that."""
        return self.size[0] if self.squares and self.resize != "crop" else 0

    def read(self, numbers: Tensor) -> Tensor:
        """Decode files by number, several at once: decoders do not hold Python's lock.

        The channels of a pixel lie side by side, as files have them.
        """
        _, channels, height, width = self.shape
        images = np.empty((len(numbers), height, width, channels), np.uint8)

        mode = "L" if self.grey else "RGB"

        def convert(image: Image.Image) -> Image.Image:
            image = image if image.mode == mode else image.convert(mode)
            return squared(image, width, self.resize) if self.squares else image

        def some(first: int) -> None:
            for row, number in enumerate(numbers[first : first + AT_ONCE].tolist(), first):
                path = self.paths[number]
                # Of the size that all are given in: what has another is scaled by Pillow.
                pixels = None if decode is None else read_plain_jpeg(path, (height, width), decode)
                if pixels is None or pixels.shape[2] > channels:
                    pixels = _read_pixels(path, str(path), convert)
                # By NumPy: torch would share each copy out among threads of its own, in each of these threads.
                images[row] = pixels

        with _without_warnings:  # torchvision's decoders say that they will be replaced
            decode = plain_decoder(len(self.paths))
            in_parallel(some, range(0, len(numbers), AT_ONCE))
        return torch.from_numpy(images).permute(0, 3, 1, 2)


def find_shape(
    paths: Sequence[Path],
    stamps: Sequence[tuple[int, int]],
    *,
    image_size: int | None = None,
    mixed_size: int | None = None,
    resize: Resize = "scale",
) -> ImageFiles:
    """Look at the head of every file, and give them all as images of one shape: grey if all of them are.

    With `image_size` each is made a square of that many pixels, with `mixed_size` where they differ in size, which a
    warning says; without both, unequal sizes are an error. The heads of many files are remembered in the cache folder
    until a file changes.
    """
    if len(paths) < MANY:
        grey, height, width, *sizes = _common_shape(paths, image_size, mixed_size, resize)
    else:
        key = f"{FOLDER}/{stamps_digest(paths, stamps, [image_size, mixed_size, resize])[:32]}-shape"
        found = cached_arrays(
            key, "2", lambda: {"shape": np.array(_common_shape(paths, image_size, mixed_size, resize))}
        )
        grey, height, width, *sizes = found["shape"].tolist()
    if sizes:
        done = {
            "scale": f"the shorter side of each is scaled to {width} pixels and the centre cut out",
            "squash": f"all are scaled to {width}x{height}, whatever their proportions",
            "crop": f"the centre of {width}x{height} is cut out of each",
        }
        warnings.warn(
            "images differ in size ({}x{}, {}x{}, ...): ".format(*sizes)
            + f"{done[resize]}; `image_size` and `resize` choose otherwise",
            stacklevel=2,
        )
    return ImageFiles(paths, bool(grey), (height, width), stamps, squares=bool(sizes or image_size), resize=resize)


def _common_shape(
    paths: Sequence[Path], image_size: int | None, mixed_size: int | None, resize: Resize
) -> tuple[int, ...]:
    """Whether all files are grey, their height and width, and, where these are `mixed_size`, two sizes that differ."""

    def heads(some: Sequence[Path]) -> list[tuple[tuple[int, int], str]]:
        found = []
        for path in some:
            with open_image(path, str(path)) as image:
                found.append((upright_size(image), image.mode))
        return found

    parts = [paths[start : start + AT_ONCE] for start in range(0, len(paths), AT_ONCE)]
    found = [head for part in in_parallel(heads, parts) for head in part]
    if not found:
        raise InputError("no image files to read; check the folder")
    first = found[0][0]
    for path, (size, mode) in zip(paths, found, strict=True):
        if mode.startswith(("I", "F")):
            raise InputError(f"{path} has more than 8 bits per channel (mode {mode}); convert it to 8-bit grey or RGB")
        if image_size is None and mixed_size is None and size != first:
            raise InputError(
                f"images differ in size: {paths[0].name} is {first[0]}x{first[1]}, {path.name} is "
                f"{size[0]}x{size[1]}; set `image_size`, for example to {min(*size, *first)}"
            )
    grey = all(mode in GREY_MODES for _, mode in found)
    other = next((size for size, _ in found if size != first), None)
    side = image_size or (mixed_size if other else None)
    if side is None:
        return grey, first[1], first[0]
    small = next((path for path, (size, _) in zip(paths, found, strict=True) if min(size) < side), None)
    if resize == "crop" and small:
        raise InputError(f"{small} is smaller than {side}x{side}, which cannot be cut out of it; set `resize` to scale")
    return (grey, side, side) if image_size or other is None else (grey, side, side, *first, *other)


def why_broken(paths: Sequence[Path]) -> list[str]:
    """Decode files: for each why it cannot be read, or nothing."""

    def some(part: Sequence[Path]) -> list[str]:
        reasons = []
        for path in part:
            try:
                with open_image(path, str(path)) as image:
                    if image.mode.startswith(("I", "F")):
                        raise InputError(f"{path} has more than 8 bits per channel (mode {image.mode})")
                    image.load()
                reasons.append("")
            except InputError as error:
                reasons.append(str(error).removesuffix(f"; {REMEDY}"))
        return reasons

    parts = [paths[start : start + AT_ONCE] for start in range(0, len(paths), AT_ONCE)]
    return [reason for part in in_parallel(some, parts) for reason in part]


def in_parallel(work: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    """Call a function for each of some arguments in as many threads as there are cores; the first error is raised."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        try:
            return list(pool.map(work, *arguments))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def stamps_digest(paths: Sequence[Path], stamps: Sequence[tuple[int, int]], more: object = None) -> str:
    """Digest of file names and of the size and time of change of each."""
    sha = hashlib.sha256(json.dumps(more).encode())
    folders: dict[Path, str] = {}
    for path, stamp in zip(paths, stamps, strict=True):
        folder = folders.get(path.parent) or folders.setdefault(path.parent, os.path.realpath(path.parent))
        sha.update(f"{folder}/{path.name}\0{stamp}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()


@contextmanager
def open_image(source: Path | BytesIO, name: str) -> Iterator[Image.Image]:
    """Open an image of one of our formats, whatever its name says: others may start programs of their own.

    `name` is for messages. Whatever goes wrong while it is open is said of the image; Pillow's warnings are about
    camera notes, or an error follows.
    """
    try:
        with open_regular(source) if isinstance(source, Path) else nullcontext(source) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            with _without_warnings, Image.open(file, formats=FORMATS) as image:
                check_size(name, 8 * image.width * image.height, size, what="to decode and convert")
                yield image
    except InputError:
        raise  # of what was done with the open image
    except UnidentifiedImageError as error:  # whose message shows Python's file
        raise BrokenImageError(f"{shown(name)} is not a readable image (of no format known here); {REMEDY}") from error
    except Exception as error:  # a damaged file can lead Pillow anywhere
        reason = shown(first_line(error))
        raise BrokenImageError(f"{shown(name)} is not a readable image ({reason}); {REMEDY}") from error


class _WithoutWarnings:
    """Leave warnings out while any thread is inside: `warnings.catch_warnings` is for one thread alone."""

    def __init__(self) -> None:
        self.lock, self.inside, self.kept = threading.Lock(), 0, warnings.catch_warnings()

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            if self.inside == 1:
                self.kept = warnings.catch_warnings()
                self.kept.__enter__()
                warnings.simplefilter("ignore")

    def __exit__(self, *_error: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.kept.__exit__(None, None, None)


_without_warnings = _WithoutWarnings()


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of an image as viewers show it: cameras store how they were held (EXIF), not turned pixels."""
    stored = "exif" in image.info or image.format == "TIFF"  # asking others would decode them
    turned = stored and image.getexif().get(ORIENTATION, 1) > 4
    return (image.height, image.width) if turned else image.size
