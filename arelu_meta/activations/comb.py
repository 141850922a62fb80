"""Comb: a learned affine combination of activations (Manessi and Rozza 2018, arXiv 1801.09403), and Chen's."""

import torch
from torch import Tensor, fx, nn

from arelu_meta.kernels.two_slopes import two_slopes

fx.wrap("two_slopes")


def comb(x: Tensor, shares: Tensor) -> Tensor:
    """Mix identity, ReLU and tanh with weights s_1, s_2 and 1 - s_1 - s_2; `shares` is (2,), x of any shape.

    >>> comb(torch.tensor([-2.0, 2.0]), torch.tensor([0.5, 0.5])).tolist()
    [-1.0, 2.0]
    """
    identity, relu = shares.to(x.dtype).unbind()
    return identity * x + relu * torch.relu(x) + (1 - identity - relu) * torch.tanh(x)


class Comb(nn.Module):
    """The affine combination aff({identity, ReLU, tanh}): weights sum to one, two of them free, started equal."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.full((2,), 1 / 3))

    def forward(self, x: Tensor) -> Tensor:
        """Mix the three functions."""
        return comb(x, self.shares)


class CombPaper(nn.Module):
    """p x + (1 - p) relu(x) with p started at 0, as coded by Chen: algebraically PReLU with slope p."""

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by p below zero and by one from zero on."""
        return two_slopes(x, self.share, 1.0)
