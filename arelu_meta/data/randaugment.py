"""RandAugment (Cubuk et al. 2020) on whole batches: each image draws operations and directions of its own.

Operations and magnitudes are those of torchvision's `RandAugment` with 31 levels; images of a batch that drew the same
operation go through torchvision's kernel together.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as kernels

LEVELS = 31
Operation = Callable[[Tensor, float], Tensor]


def _moved(images: Tensor, **changes: Any) -> Tensor:
    """Shear or shift images by torchvision's affine map; black comes in."""
    still = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]}
    moved: Tensor = kernels.affine(images, **{**still, **changes})
    return moved


def _sheared(images: Tensor, slope: float, *, axis: int) -> Tensor:
    shear = [0.0, 0.0]
    shear[axis] = math.degrees(math.atan(slope))
    return _moved(images, shear=shear, center=[0, 0])


def _shifted(images: Tensor, share: float, *, axis: int) -> Tensor:
    """Shift images by a share of their width (axis 0) or height (axis 1), in whole pixels."""
    translate = [0, 0]
    translate[axis] = int(share * images.shape[3 - axis])
    return _moved(images, translate=translate)


# By name: the operation, its magnitude at the highest level (at the lowest it changes nothing), and whether that has a
# sign, which is drawn.
OPERATIONS: dict[str, tuple[Operation, float, bool]] = {
    "identity": (lambda images, _: images, 0.0, False),
    "shear_x": (partial(_sheared, axis=0), 0.3, True),
    "shear_y": (partial(_sheared, axis=1), 0.3, True),
    "translate_x": (partial(_shifted, axis=0), 150 / 331, True),
    "translate_y": (partial(_shifted, axis=1), 150 / 331, True),
    "rotate": (lambda images, degrees: kernels.rotate(images, angle=degrees), 30.0, True),
    "brightness": (lambda images, by: kernels.adjust_brightness(images, 1 + by), 0.9, True),
    "color": (lambda images, by: kernels.adjust_saturation(images, 1 + by), 0.9, True),
    "contrast": (lambda images, by: kernels.adjust_contrast(images, 1 + by), 0.9, True),
    "sharpness": (lambda images, by: kernels.adjust_sharpness(images, 1 + by), 0.9, True),
    "posterize": (lambda images, by: kernels.posterize(images, bits=8 - round(by)), 4.0, False),
    "solarize": (lambda images, by: kernels.solarize(images, threshold=255 * (1 - by)), 1.0, False),
    "autocontrast": (lambda images, _: kernels.autocontrast(images), 0.0, False),
    "equalize": (lambda images, _: kernels.equalize(images), 0.0, False),
}


def randaugment(images: Tensor, random: torch.Generator, *, operations: int, level: int) -> Tensor:
    """Change each image by operations drawn for it, one after the other.

    Args:
        images: (n, C, H, W) uint8 with 1 or 3 channels.
        random: generator on the CPU.
        operations: how many for each image.
        level: strength of all of them, 0 to 30.

    Returns:
        New images of the same shape and type.

    Example:
        >>> images = torch.full((4, 3, 8, 8), 100, dtype=torch.uint8)
        >>> randaugment(images, torch.Generator().manual_seed(0), operations=2, level=9).shape
        torch.Size([4, 3, 8, 8])
    """
    changed = images.clone(memory_format=torch.contiguous_format)  # kernels of torchvision flatten images
    for _ in range(operations):
        drawn = torch.randint(len(OPERATIONS), (len(images),), generator=random)
        negative = torch.rand(len(images), generator=random) <= 0.5
        for number, (operation, most, signed) in enumerate(OPERATIONS.values()):
            for sign in (1, -1) if signed else (1,):
                chosen = (drawn == number) & (negative == (sign < 0)) if signed else drawn == number
                rows = chosen.nonzero().squeeze(1).to(images.device)
                if len(rows):
                    changed[rows] = operation(changed[rows], sign * most * level / (LEVELS - 1))
    return changed
