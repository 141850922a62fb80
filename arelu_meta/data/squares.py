"""Squares of pictures of any proportions: what they are scaled to, and which part of that is cut out.

`scale` brings the shorter side to that of the square and cuts the centre out, as torchvision's `Resize` and
`CenterCrop` do and networks are published with; `squash` scales both sides, whatever the proportions; `crop` cuts the
centre out of the pixels as they are.
"""

from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arelu_meta.errors import InputError, unknown

Resize = Literal["crop", "scale", "squash"]


def check_resize(word: object) -> None:
    """Refuse a word that is none of these."""
    if word not in get_args(Resize):
        raise unknown("resize", str(word), get_args(Resize))


def scaled_size(height: int, width: int, side: int, resize: Resize) -> tuple[int, int]:
    """Height and width that a picture is scaled to before a square of `side` is cut out of it.

    >>> scaled_size(480, 640, 224, "scale"), scaled_size(480, 640, 224, "squash"), scaled_size(480, 640, 224, "crop")
    ((224, 298), (224, 224), (480, 640))
    """
    if resize == "crop":
        return height, width
    if resize == "squash" or height == width:
        return side, side
    longer = int(side * max(height, width) / min(height, width))  # rounded as torchvision's `Resize` does
    return (side, longer) if height < width else (longer, side)


def centre(whole: int, part: int, resize: Resize) -> int:
    """Where the middle part of a side begins.

    An odd rest is divided as torchvision's `CenterCrop` does for `scale`, for the others as stored models have it.

    >>> centre(11, 8, "scale"), centre(11, 8, "crop")
    (2, 1)
    """
    return round((whole - part) / 2) if resize == "scale" else (whole - part) // 2


def squared(image: Image.Image, side: int, resize: Resize) -> Image.Image:
    """Make a square of a picture by Pillow, scaled by its Lanczos filter.

    Raises:
        InputError: `crop` of a picture that is smaller.
    """
    if resize == "crop" and side > min(image.size):
        raise InputError(f"{side}x{side} cannot be cut out of {image.width}x{image.height}; set `resize` to scale")
    height, width = scaled_size(image.height, image.width, side, resize)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    if image.size == (side, side):
        return image
    left, top = centre(width, side, resize), centre(height, side, resize)
    return image.crop((left, top, left + side, top + side))


def squared_pixels(pixels: Tensor, side: int, resize: Resize) -> Tensor:
    """Do the same with images (N, C, H, W) uint8, for all channels: what `squared` makes of their files."""
    if not side or tuple(pixels.shape[2:]) == (side, side):
        return pixels
    made = []
    for image in pixels.cpu():  # (C, H, W)
        layers = [squared(Image.fromarray(layer.numpy()), side, resize) for layer in image.contiguous()]
        made.append(torch.from_numpy(np.stack([np.array(layer) for layer in layers])))
    return torch.stack(made).to(pixels.device)
