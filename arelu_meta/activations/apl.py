"""APL: adaptive piecewise linear units (Agostinelli et al. 2014, arXiv 1412.6830)."""

import torch
from torch import Tensor, fx, nn

fx.wrap("apl")  # goes through its segments


def apl(x: Tensor, slopes: Tensor, hinges: Tensor) -> Tensor:
    """Compute max(0, x) + sum over s of a_s max(0, b_s - x), x of any shape.

    Args:
        x: input
        slopes: a, (segments,)
        hinges: b, (segments,)

    >>> apl(torch.tensor([-1.0, 2.0]), torch.tensor([0.5]), torch.tensor([1.0])).tolist()
    [1.0, 2.0]
    """
    pieces = [
        slope * torch.relu(hinge - x) for slope, hinge in zip(slopes.to(x.dtype), hinges.to(x.dtype), strict=True)
    ]
    return torch.relu(x) + torch.stack(pieces).sum(0)


class APL(nn.Module):
    """APL with slopes and hinges shared per layer, two parameters per segment (the original has them per unit).

    Starts at a = 0.2 and b = 0.5, the values of the AReLU comparison.

    Args:
        segments: number of hinges
    """

    def __init__(self, segments: int = 1) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.full((segments,), 0.2))
        self.hinges = nn.Parameter(torch.full((segments,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Add the hinges to ReLU."""
        return apl(x, self.slopes, self.hinges)
