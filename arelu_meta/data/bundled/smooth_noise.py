"""Smooth random fields: coarse noise on a grid, made fine by cubic interpolation."""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage


@cache
def _fine_from_coarse(coarse: int, fine: int) -> NDArray[np.float64]:
    """Give the matrix (fine, coarse) that interpolates `coarse` values at `fine` places."""
    return np.stack([ndimage.zoom(row, fine / coarse, order=3, mode="nearest") for row in np.eye(coarse)], axis=1)


def smooth_noise(random: np.random.Generator, shape: tuple[int, ...], coarse: int, fine: int) -> NDArray[np.float64]:
    """Draw independent fields (*shape, fine, fine), unit normal on a `coarse` x `coarse` grid and smooth between."""
    up = _fine_from_coarse(coarse, fine)
    return np.asarray(up @ random.standard_normal((*shape, coarse, coarse)) @ up.T)
