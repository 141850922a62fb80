"""Make images fit a network: colour channels and size."""

from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError

Resize = Literal["crop", "scale"]
LUMINANCE = (0.299, 0.587, 0.114)  # ITU-R BT.601, as PIL and torchvision convert


def fit_images(images: ImageSet, *, channels: int = 0, image_size: int = 0, resize: Resize = "scale") -> ImageSet:
    """Give the set with so many channels and square images of that size; 0 leaves them as they are.

    Grey becomes colour by repetition, colour grey by luminance. `crop` cuts the centre out, `scale` resamples.

    >>> grey = ImageSet("one", torch.full((1, 1, 32, 32), 7, dtype=torch.uint8), torch.zeros(1).long(), ("a",))
    >>> fit_images(grey, channels=3, image_size=28, resize="crop").images.shape
    torch.Size([1, 3, 28, 28])
    """
    pixels, masks = images.images, images.masks
    if channels and channels != images.channels:
        pixels = _recoloured(pixels, channels, images.name)
    if image_size and images.image_size != (image_size, image_size):
        if resize == "crop":
            pixels = _cropped(pixels, image_size, images.name)
            masks = None if masks is None else _cropped(masks, image_size, images.name)
        else:
            pixels = _scaled(pixels, image_size)
            masks = None if masks is None else F.interpolate(masks, size=(image_size, image_size), mode="nearest")
    return replace(images, images=pixels, masks=masks)


def _recoloured(pixels: Tensor, channels: int, name: str) -> Tensor:
    if pixels.shape[1] == 1:
        return pixels.expand(-1, channels, -1, -1).contiguous()
    if pixels.shape[1] == 3 and channels == 1:
        weights = torch.tensor(LUMINANCE, device=pixels.device).view(1, 3, 1, 1)
        return (pixels.float() * weights).sum(1, keepdim=True).round().to(torch.uint8)
    raise InputError(f"{name} has {pixels.shape[1]} channels, which cannot be turned into {channels}")


def _cropped(pixels: Tensor, size: int, name: str) -> Tensor:
    height, width = pixels.shape[2:]
    if size > min(height, width):
        raise InputError(f"{name} has images of {height}x{width}; {size}x{size} cannot be cut out of them, use scale")
    top, left = (height - size) // 2, (width - size) // 2
    return pixels[:, :, top : top + size, left : left + size].contiguous()


def _scaled(pixels: Tensor, size: int) -> Tensor:
    parts = [
        F.interpolate(part.float(), size=(size, size), mode="bilinear", align_corners=False, antialias=True)
        for part in pixels.split(4096)  # no float copy of the whole set
    ]
    return torch.cat([part.round().clamp(0, 255).to(torch.uint8) for part in parts])
