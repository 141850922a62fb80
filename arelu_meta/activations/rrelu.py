"""RReLU in plain operations: torch's own kernel has no rule for `vmap`."""

from typing import ClassVar

import torch
from torch import Tensor, nn


def rrelu(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """Compute x for x >= 0 and a x below, a uniform on [lower, upper] per element; their mean when not training.

    Under `vmap` the slopes differ per episode (`randomness="different"`). Source: Xu et al. 2015, arXiv 1505.00853.

    >>> rrelu(torch.tensor([-8.0, 8.0]), 0.25, 0.75).tolist()
    [-4.0, 8.0]
    """
    slope = torch.rand_like(x) * (upper - lower) + lower if training else torch.full_like(x, (lower + upper) / 2)
    return torch.where(x < 0, x * slope, x)


class RReLU(nn.Module):
    """Randomised leaky ReLU; `torch.nn.RReLU` in evaluation mode, and in distribution in training mode.

    Args:
        lower: smallest slope below zero
        upper: largest slope below zero
    """

    draws_random_numbers: ClassVar[bool] = True

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3) -> None:
        super().__init__()
        self.lower, self.upper = lower, upper

    def forward(self, x: Tensor) -> Tensor:
        """Apply random slopes in training mode, the mean slope otherwise."""
        return rrelu(x, self.lower, self.upper, self.training)
