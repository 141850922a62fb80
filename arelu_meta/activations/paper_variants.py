"""Three baselines as the authors' code has them, where it degenerates; to set beside the published figures."""

import torch
from torch import Tensor, nn

from arelu_meta.kernels.two_slopes import two_slopes


class MaxoutPaper(nn.Identity):
    """Maxout over one piece: the largest of one number is that number, so this is the identity."""


class SLAFPaper(nn.Module):
    """A polynomial of two terms started at 1 + x: affine, so the layer adds no non-linearity."""

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        """Compute a0 + a1 x."""
        constant, slope = self.coefficients.to(x.dtype)
        return constant + slope * x


class CombPaper(nn.Module):
    """p x + (1 - p) relu(x) with p started at 0: algebraically PReLU with slope p."""

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by p below zero and by one from zero on."""
        return two_slopes(x, self.share, 1.0)
