"""Augmentation of whole batches as tensors on their device; each image of a batch draws its own.

augment("standard")                     random resized crop, half of them mirrored
augment("none", randaugment=(2, 9))     two operations at level 9; also `color_jitter`, `random_erasing`
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.data.color_jitter import color_jitter as jitter
from arelu_meta.data.rectangles import crop_resized, draw_crops, erase
from arelu_meta.errors import unknown

Augment: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]


def augment(
    name: str,
    *,
    crop_scale: Sequence[float] = (0.08, 1.0),
    randaugment: Sequence[int] = (),
    color_jitter: Sequence[float] = (),
    random_erasing: float = 0.0,
    fill: tuple[float, ...] = (),
) -> Augment | None:
    """Find an augmentation of uint8 images by name, followed by what else is asked for.

    Args:
        name: `none`, `crop_flip`, `shift` or `standard`: random resized crop, half of them mirrored.
        crop_scale: of `standard`: smallest and largest share of the area that is cut out.
        randaugment: number of operations and level of RandAugment; empty: none.
        color_jitter: brightness, contrast, saturation and, if given, hue; empty: none.
        random_erasing: share of the images of which a rectangle is erased.
        fill: colour of what is erased, per channel in [0, 1].

    Returns:
        A function of a batch (N, C, H, W) and a `torch.Generator` on the CPU that returns a new batch of the same shape
        and type; None where nothing is asked for.

    Raises:
        InputError: an unknown name.

    Example:
        >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
        >>> augment("crop_flip")(images, torch.Generator().manual_seed(0)).shape
        torch.Size([4, 3, 32, 32])
    """
    if name not in AUGMENTS:
        raise unknown("augmentation", name, AUGMENTS)
    first = partial(standard, scale=crop_scale) if name == "standard" else AUGMENTS[name]
    steps: list[Augment] = [] if first is None else [first]
    if randaugment:
        from arelu_meta.data import randaugment as policy  # and torchvision

        steps.append(partial(policy.randaugment, operations=randaugment[0], level=randaugment[1]))
    if color_jitter:
        steps.append(jitter(*color_jitter))
    if random_erasing:
        steps.append(partial(erase, share=random_erasing, fill=fill))
    return partial(_in_turn, steps=steps) if len(steps) > 1 else next(iter(steps), None)


def _in_turn(images: Tensor, random: torch.Generator, *, steps: Sequence[Augment]) -> Tensor:
    for step in steps:
        images = step(images, random)
    return images


def standard(images: Tensor, random: torch.Generator, *, scale: Sequence[float] = (0.08, 1.0)) -> Tensor:
    """Cut a rectangle out of each image, resample it to the image's size, and mirror half of them."""
    height, width = images.shape[2:]
    return crop_resized(images, draw_crops(len(images), (height, width), random, scale=(scale[0], scale[1])))


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
AUGMENTS: dict[str, Augment | None] = {"none": None, "crop_flip": crop_flip, "shift": shift, "standard": standard}


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
