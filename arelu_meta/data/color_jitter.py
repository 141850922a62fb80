"""Colour jitter of whole batches: brightness, contrast, saturation and hue, other factors and another order per image.

Formulas, ranges and the random order are those of torchvision's `ColorJitter`, for bytes.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from arelu_meta.errors import InputError

GREY = (0.2989, 0.587, 0.114)  # torchvision's weights
Jitter = Callable[[Tensor, torch.Generator], Tensor]


def color_jitter(brightness: float, contrast: float, saturation: float, hue: float = 0.0) -> Jitter:
    """Give a function of images (n, C, H, W) uint8 and a generator that changes the colours of each.

    Args:
        brightness, contrast, saturation: factors are drawn from max(0, 1 - value) to 1 + value; 0: not changed.
        hue: turns of the hue are drawn from -value to value, at most 0.5.

    Raises:
        InputError: a negative value, or a hue above 0.5.
    """
    values = (brightness, contrast, saturation, hue)
    if min(values) < 0 or hue > 0.5:
        raise InputError(f"colour jitter {' '.join(f'{value:g}' for value in values)}: give 0 or more, hue up to 0.5")
    return partial(_jittered, values=values)


def _jittered(images: Tensor, random: torch.Generator, *, values: tuple[float, ...]) -> Tensor:
    count = len(images)
    uniform = torch.rand(4, count, generator=random)
    order = torch.rand(count, 4, generator=random).argsort(1)  # of each image, which change comes when
    low = [*(max(0.0, 1 - value) for value in values[:3]), -values[3]]
    high = [*(1 + value for value in values[:3]), values[3]]
    changed = images.clone()
    for turn in range(4):
        for kind, change in enumerate((adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)):
            chosen = (order[:, turn] == kind).nonzero().squeeze(1)
            if not len(chosen) or not values[kind]:
                continue
            factors = (low[kind] + (high[kind] - low[kind]) * uniform[kind, chosen]).to(images.device).view(-1, 1, 1, 1)
            chosen = chosen.to(images.device)
            changed[chosen] = change(changed[chosen], factors)
    return changed


def _grey(images: Tensor) -> Tensor:
    """Luminance (n, 1, H, W) as whole numbers in float32; grey images as they are."""
    if images.shape[1] == 1:
        return images.float()
    weights = torch.tensor(GREY, device=images.device).view(1, 3, 1, 1)
    red, green, blue = (images.float() * weights).unbind(1)
    return (red + green + blue).floor().unsqueeze(1)


def _blended(images: Tensor, other: Tensor, factors: Tensor) -> Tensor:
    return (images.float() * factors + other * (1 - factors)).clamp(0, 255).to(torch.uint8)


def adjust_brightness(images: Tensor, factors: Tensor) -> Tensor:
    """Multiply each image (n, C, H, W) uint8 by its factor (n, 1, 1, 1)."""
    return (images.float() * factors).clamp(0, 255).to(torch.uint8)


def adjust_contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Blend each image with the mean of its luminance."""
    return _blended(images, _grey(images).mean((1, 2, 3), keepdim=True), factors)


def adjust_saturation(images: Tensor, factors: Tensor) -> Tensor:
    """Blend each image with its luminance; grey images stay as they are."""
    return images if images.shape[1] == 1 else _blended(images, _grey(images), factors)


def adjust_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue of each image by its share of the whole circle; grey images stay as they are.

    With value v and chroma c of a colour, its channels are v - c * clamp(min(k, 4 - k), 0, 1), k = (n + 6 h) mod 6 for
    n = 5, 3, 1.
    """
    if images.shape[1] == 1:
        return images
    rgb = images.float() / 255
    red, green, blue = rgb.unbind(1)
    value, chroma = rgb.amax(1), rgb.amax(1) - rgb.amin(1)
    divisor = torch.where(chroma == 0, 1.0, chroma)
    sextant = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    sextant = sextant + 6 * turns.squeeze(1)
    channels = []
    for start in (5, 3, 1):
        k = (start + sextant) % 6
        channels.append(value - chroma * torch.minimum(k, 4 - k).clamp(0, 1))
    return (torch.stack(channels, 1) * 255).round().clamp(0, 255).to(torch.uint8)
