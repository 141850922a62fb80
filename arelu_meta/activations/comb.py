"""Comb: a learned affine combination of activations (Manessi and Rozza 2018, arXiv 1801.09403)."""

import torch
from torch import Tensor, nn


def comb(x: Tensor, shares: Tensor) -> Tensor:
    """Mix identity, ReLU and tanh with weights s_1, s_2 and 1 - s_1 - s_2; `shares` is (2,)."""
    identity, relu = shares.to(x.dtype)
    return identity * x + relu * torch.relu(x) + (1 - identity - relu) * torch.tanh(x)


class Comb(nn.Module):
    """The affine combination aff({identity, ReLU, tanh}): weights sum to one, two of them free, started equal."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.full((2,), 1 / 3))

    def forward(self, x: Tensor) -> Tensor:
        """Mix the three functions."""
        return comb(x, self.shares)
