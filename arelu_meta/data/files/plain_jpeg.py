"""Plain JPEG files, decoded by torchvision in two thirds of the time that Pillow takes, to the same pixels.

Plain is what most photographs are: 8 bits, sequential, one scan, grey or YCbCr, nothing that Pillow would act on (EXIF,
colour profiles, Adobe's colours). Whatever is not, or goes wrong, is Pillow's, with its errors. torchvision 0.29 says
that its decoders will be removed: without them all files are Pillow's.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from arelu_meta.errors import InputError
from arelu_meta.reading import MOST, check_size, open_regular

Decode = Callable[[Tensor], Tensor]

WORTH = 10_000  # files from which on torchvision saves more time than its import takes
MOST_BYTES = 16 << 20  # of a file that is read at once
START, SCAN, FRAME, END = 0xD8, 0xDA, 0xC0, b"\xff\xd9"
PASSED_OVER = frozenset({0xC4, 0xDB, 0xDD, 0xE0, 0xFE})  # tables, the restart interval, JFIF, comments
SAMPLINGS = ((1, 1), (2, 1), (2, 2))  # of brightness, to one of each colour: all that is compared below


def plain_decoder(count: int) -> Decode | None:
    """Find torchvision's decoder, where it is worth it for so many files and gives the pixels of Pillow."""
    return _compared_decoder() if count >= WORTH or "torchvision.io" in sys.modules else None


@cache
def _compared_decoder() -> Decode | None:
    """Import it and compare it with Pillow: each brings a libjpeg of its own, and versions have differed."""
    try:
        from torchvision.io import decode_jpeg

        for content in _probes():
            with Image.open(BytesIO(content)) as image:
                wanted = np.asarray(image).reshape(image.height, image.width, -1)
            found = decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            if not np.array_equal(found.permute(1, 2, 0).numpy(), wanted):
                return None
    except (ImportError, RuntimeError, OSError):  # without it, or built without libjpeg
        return None
    return decode_jpeg


def _probes() -> Iterator[bytes]:
    """Encode noise of odd sizes, in all samplings and in grey."""
    noise = np.random.default_rng(0).integers(0, 256, (37, 51, 3), dtype=np.uint8)
    for pixels, options in ((noise, {"subsampling": kind}) for kind in range(3)):
        yield _encoded(pixels, options)
    yield _encoded(noise[..., 0], {})


def _encoded(pixels: NDArray[np.uint8], options: dict[str, int]) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90, **options)
    return file.getvalue()


def read_plain_jpeg(path: Path, size: tuple[int, int], decode: Decode) -> NDArray[np.uint8] | None:
    """Decode a file of a height and width, (H, W, 1 or 3), if it is a plain JPEG; else None, whatever the reason."""
    try:
        with open_regular(path) as file:
            length = os.fstat(file.fileno()).st_size
            if length > MOST_BYTES:
                return None
            content = torch.empty(length, dtype=torch.uint8)
            if file.readinto(content.numpy().data) != length:  # type: ignore[attr-defined]
                return None
        channels = plain_channels(content.numpy().data, size)
        if not channels or 8 * size[0] * size[1] > MOST:
            return None
        check_size(path, 8 * size[0] * size[1], length)
        pixels: NDArray[np.uint8] = decode(content).permute(1, 2, 0).numpy()
        return pixels if pixels.shape == (*size, channels) else None
    except (InputError, OSError, RuntimeError):
        return None


def plain_channels(content: memoryview, size: tuple[int, int]) -> int:
    """Read the head of a JPEG file: its channels, if it is plain and of a height and width, else 0."""
    if len(content) < 4 or content[0] != 0xFF or content[1] != START or bytes(content[-2:]) != END:
        return 0
    place, channels = 2, 0
    while place + 4 <= len(content) and content[place] == 0xFF:
        kind = content[place + 1]
        length = 256 * content[place + 2] + content[place + 3]
        segment = content[place + 4 : place + 2 + length]
        if kind == SCAN:
            return channels if len(segment) and segment[0] == channels else 0
        if kind == FRAME and not channels:
            channels = _frame_channels(segment, size)
        elif kind not in PASSED_OVER:
            return 0
        place += 2 + length
    return 0


def _frame_channels(segment: memoryview, size: tuple[int, int]) -> int:
    """Read the channels of a frame: 8 bits, of this size, one channel or brightness and two colours; else 0."""
    if len(segment) < 6 or segment[0] != 8:
        return 0
    height, width, channels = 256 * segment[1] + segment[2], 256 * segment[3] + segment[4], segment[5]
    if (height, width) != size or len(segment) != 6 + 3 * channels:
        return 0
    numbers = [segment[6 + 3 * channel] for channel in range(channels)]
    samplings = [divmod(segment[7 + 3 * channel], 16) for channel in range(channels)]
    if channels == 1:
        return 1 if samplings[0] == (1, 1) else 0
    colours = numbers == [1, 2, 3] and samplings[0] in SAMPLINGS and samplings[1:] == [(1, 1)] * 2
    return 3 if colours else 0
