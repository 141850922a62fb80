"""Augmentation of whole batches as tensors, at rest in uint8: index arithmetic, no Python work per image."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from arelu_meta.errors import unknown

Augment: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]


def crop_flip(images: Tensor, random: torch.Generator) -> Tensor:
    """Shift each image by up to four pixels (zeros come in) and mirror half of them: (N, C, H, W) -> the same."""
    return _moved(images, random, by=4, mirror=True)


def shift(images: Tensor, random: torch.Generator) -> Tensor:
    """Shift each image by up to two pixels: for digits and letters, which have no mirror images."""
    return _moved(images, random, by=2, mirror=False)


def _moved(images: Tensor, random: torch.Generator, *, by: int, mirror: bool) -> Tensor:
    count, _, height, width = images.shape
    device = images.device
    top, left = (torch.randint(2 * by + 1, (count, 1), generator=random).to(device) for _ in range(2))
    rows = top + torch.arange(height, device=device)  # (N, H), into the padded image
    columns = torch.arange(width, device=device).expand(count, -1)
    if mirror:
        flipped = (torch.rand(count, 1, generator=random) < 0.5).to(device)
        columns = torch.where(flipped, width - 1 - columns, columns)
    columns = left + columns  # (N, W)
    number = torch.arange(count, device=device).view(-1, 1, 1)
    padded = torch.nn.functional.pad(images, (by,) * 4).permute(0, 2, 3, 1)
    return padded[number, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


AUGMENTS: dict[str, Augment | None] = {"none": None, "crop_flip": crop_flip, "shift": shift}


def augment(name: str) -> Augment | None:
    """Find an augmentation by name."""
    if name not in AUGMENTS:
        raise unknown("augmentation", name, AUGMENTS)
    return AUGMENTS[name]
