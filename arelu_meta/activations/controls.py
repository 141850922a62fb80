"""Control arms that take AReLU apart: is it the shape, the gain, or the learning?

At its start AReLU has slopes 0.9 and 1.8808, so on zero-mean input its output has 2.085 times the root mean square of
ReLU's: sqrt(0.9^2 + 1.8808^2) to sqrt(0^2 + 1^2). A network with torch's default initialisation learns faster for that
gain alone.
"""

import math
from typing import Final

import torch
from torch import Tensor, fx, nn

from arelu_meta.activations.arelu import ALPHA_START, BETA_START, AReLU
from arelu_meta.kernels.two_slopes import two_slopes

POSITIVE_START = 1 + 1 / (1 + math.exp(-BETA_START))
RMS_GAIN_OVER_RELU = math.hypot(ALPHA_START, POSITIVE_START)
fx.wrap("two_slopes")


class AReLUFrozen(nn.Module):
    """AReLU as it starts, never learned: the shape and the gain without the learning."""

    negative_slope: Tensor
    positive_slope: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("negative_slope", torch.tensor(ALPHA_START))
        self.register_buffer("positive_slope", torch.tensor(POSITIVE_START))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the two fixed slopes."""
        return two_slopes(x, self.negative_slope, self.positive_slope)


class ReLUGain(nn.Module):
    """ReLU times a constant: the gain without the shape.

    Args:
        gain: the constant; by default 2.085, AReLU's RMS gain over ReLU
    """

    def __init__(self, gain: float = RMS_GAIN_OVER_RELU) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, x: Tensor) -> Tensor:
        """Apply ReLU and multiply."""
        return torch.relu(x) * self.gain

    def extra_repr(self) -> str:
        """Show the gain in the printed network."""
        return f"gain={self.gain:.4f}"


class AReLUUnit(AReLU):
    """AReLU divided by 2.085: the shape and the learning at ReLU's gain. Takes the arguments of AReLU."""

    gain: Final[float] = RMS_GAIN_OVER_RELU

    def forward(self, x: Tensor) -> Tensor:
        """Apply AReLU and divide."""
        return two_slopes(x, self.negative_slope, self.positive_slope) / self.gain
