"""Batches of images with their masks, turned, scaled and mirrored together."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError


class MaskBatches(Batches):
    """One pass over a segmentation set per iteration: pixels (N, C, H, W) and masks (N, 1, H, W) as float32.

    With `affine`, each pair is scaled by up to 5 %, turned by up to 15 degrees and mirrored half of the time, as Buda
    et al. 2019 do.
    """

    def __init__(self, images: ImageSet, batch_size: int, random: torch.Generator, *, affine: bool = False) -> None:
        super().__init__(images, batch_size, random)
        if images.masks is None:
            raise InputError(f"{images.name} has no masks; segmentation needs a set with masks, such as phantom or lgg")
        self.masks, self.affine = images.masks, affine

    def gather(self, numbers: Tensor, share: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Normalised pixels and masks of a share of some images, moved together."""
        movements = random_affine(len(numbers), self.random)[share] if self.affine else None
        numbers = numbers[share].to(self.images.device)
        pixels, masks = self.images.pixels(numbers), self.masks[numbers].float()
        if movements is None or not len(numbers):
            return pixels, masks
        grid = F.affine_grid(movements.to(pixels.device), list(pixels.shape), False)
        return (
            F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False),
            F.grid_sample(masks, grid, mode="nearest", padding_mode="zeros", align_corners=False),
        )


def random_affine(count: int, random: torch.Generator, *, scale: float = 0.05, degrees: float = 15.0) -> Tensor:
    """Draw matrices (count, 2, 3) that scale, turn and mirror about the centre."""
    uniform = torch.rand(3, count, generator=random)
    size = 1 + (2 * uniform[0] - 1) * scale
    angle = (2 * uniform[1] - 1) * math.radians(degrees)
    mirror = torch.where(uniform[2] < 0.5, -1.0, 1.0)
    matrix = torch.zeros(count, 2, 3)
    matrix[:, 0, 0], matrix[:, 0, 1] = angle.cos() * size * mirror, -angle.sin() * size
    matrix[:, 1, 0], matrix[:, 1, 1] = angle.sin() * size * mirror, angle.cos() * size
    return matrix
