"""Augmentation of whole batches as tensors: index arithmetic and one resampling, no Python work per image."""

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.errors import unknown

Augment: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]


def augment(name: str) -> Augment | None:
    """Find an augmentation of uint8 images by name.

    Args:
        name: `none`, `crop_flip` or `shift`.

    Returns:
        A function of a batch (N, C, H, W) and a `torch.Generator` on the CPU that returns a new batch of the same shape
        and type; None for `none`.

    Raises:
        InputError: an unknown name.

    Example:
        >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
        >>> augment("crop_flip")(images, torch.Generator().manual_seed(0)).shape
        torch.Size([4, 3, 32, 32])
    """
    if name not in AUGMENTS:
        raise unknown("augmentation", name, AUGMENTS)
    return AUGMENTS[name]


def _shifted(images: Tensor, random: torch.Generator, *, by: int, mirror: bool) -> Tensor:
    """Shift each image by up to `by` pixels, zeros coming in, and mirror half of them: (N, C, H, W) -> the same."""
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
    padded = F.pad(images, (by,) * 4).permute(0, 2, 3, 1)
    return padded[number, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


crop_flip = partial(_shifted, by=4, mirror=True)
shift = partial(_shifted, by=2, mirror=False)  # for digits and letters, which have no mirror images
AUGMENTS: dict[str, Augment | None] = {"none": None, "crop_flip": crop_flip, "shift": shift}


def random_affine(count: int, random: torch.Generator, *, scale: float = 0.05, degrees: float = 15.0) -> Tensor:
    """Draw matrices (count, 2, 3) that scale, turn and mirror about the centre, as Buda et al. 2019 do."""
    uniform = torch.rand(3, count, generator=random)
    size = 1 + (2 * uniform[0] - 1) * scale
    angle = (2 * uniform[1] - 1) * math.radians(degrees)
    mirror = torch.where(uniform[2] < 0.5, -1.0, 1.0)
    matrix = torch.zeros(count, 2, 3)
    matrix[:, 0, 0], matrix[:, 0, 1] = angle.cos() * size * mirror, -angle.sin() * size
    matrix[:, 1, 0], matrix[:, 1, 1] = angle.sin() * size * mirror, angle.cos() * size
    return matrix


def transform_pairs(pixels: Tensor, masks: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Resample float images (N, C, H, W) and their masks (N, 1, H, W) by the same matrices (N, 2, 3).

    Images are interpolated and continued at their border; masks keep their values, with zeros coming in.
    """
    grid = F.affine_grid(matrices.to(pixels.device), list(pixels.shape), align_corners=False)
    return (
        F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False),
        F.grid_sample(masks, grid, mode="nearest", padding_mode="zeros", align_corners=False),
    )
