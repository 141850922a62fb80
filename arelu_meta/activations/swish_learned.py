"""Swish with its learned slope (Ramachandran et al. 2017, arXiv 1710.05941)."""

import torch
from torch import Tensor, nn


class LearnedSwish(nn.Module):
    """x sigmoid(beta x): half of x for beta = 0, ReLU for large beta.

    Args:
        beta: start of beta; 1 is `swish`

    >>> torch.allclose(LearnedSwish()(torch.tensor([-2.0, 3.0])), nn.functional.silu(torch.tensor([-2.0, 3.0])))
    True
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(float(beta)))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the gate."""
        return x * torch.sigmoid(self.beta.to(x.dtype) * x)
