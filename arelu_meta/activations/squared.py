"""Squares of ReLU: plain, and StarReLU with a learned scale and shift."""

import torch
from torch import Tensor, nn

STAR_SCALE, STAR_SHIFT = 0.8944, -0.4472  # with them a Gaussian comes out with mean 0 and variance 1


class SquaredReLU(nn.Module):
    """ReLU squared (So et al. 2021, arXiv 2109.08668)."""

    def forward(self, x: Tensor) -> Tensor:
        """Square the positive part."""
        return torch.relu(x).square()


class StarReLU(nn.Module):
    """s relu(x)^2 + b, both learned (Yu et al. 2022, arXiv 2210.13452).

    Args:
        scale: start of s
        shift: start of b

    >>> [round(value, 4) for value in StarReLU()(torch.tensor([-1.0, 1.0])).tolist()]
    [-0.4472, 0.4472]
    """

    def __init__(self, scale: float = STAR_SCALE, shift: float = STAR_SHIFT) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.shift = nn.Parameter(torch.tensor(float(shift)))

    def forward(self, x: Tensor) -> Tensor:
        """Square the positive part, scale and shift it."""
        return self.scale.to(x.dtype) * torch.relu(x).square() + self.shift.to(x.dtype)
