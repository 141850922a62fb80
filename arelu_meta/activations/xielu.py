"""xIELU: what comes of integrating ELU as a slope (Huang and Schlag 2024, arXiv 2411.13010)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.errors import InputError

ALPHA_START, BETA = 0.8, 0.5


class XIELU(nn.Module):
    """a x^2 + x/2 above zero, b (exp(x) - 1 - x) + x/2 below; a and b learned, a above 0 and b above 1/2.

    Args:
        positive: start of a
        negative: start of b

    Raises:
        InputError: a start outside its range.

    >>> [round(value, 4) for value in XIELU()(torch.tensor([-1.0, 2.0])).tolist()]  # 0.8 (1/e) - 0.5, 0.8 * 4 + 1
    [-0.2057, 4.2]
    """

    def __init__(self, positive: float = ALPHA_START, negative: float = ALPHA_START) -> None:
        super().__init__()
        if not (positive > 0 and negative > BETA):
            raise InputError(f"positive = {positive} must be above 0, and negative = {negative} above {BETA}")
        self.positive = nn.Parameter(torch.tensor(math.log(math.expm1(positive))))
        self.negative = nn.Parameter(torch.tensor(math.log(math.expm1(negative - BETA))))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the two pieces; they meet at zero with slope 1/2."""
        a, b = F.softplus(self.positive.to(x.dtype)), 0.5 + F.softplus(self.negative.to(x.dtype))
        below = x.clamp(max=0.0)
        return a * torch.relu(x).square() + b * (torch.expm1(below) - below) + 0.5 * x
