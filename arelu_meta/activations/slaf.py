"""SLAF: a self-learnable activation, a polynomial with learned coefficients (Goyal et al. 2019, arXiv 1906.09529)."""

import torch
from torch import Tensor, nn

from arelu_meta.errors import InputError


def slaf(x: Tensor, coefficients: Tensor) -> Tensor:
    """Compute a_0 + a_1 x + a_2 x^2 + ... by Horner's rule; `coefficients` is (terms,)."""
    *rest, value = coefficients.to(x.dtype)
    result = value * torch.ones_like(x)
    for coefficient in reversed(rest):
        result = result * x + coefficient
    return result


class SLAF(nn.Module):
    """A polynomial of `terms` coefficients; three are the fewest that are not affine.

    Starts at x/2 + x^2/4, the Taylor polynomial of swish at zero; further coefficients start at zero. The start is
    ours.
    """

    def __init__(self, terms: int = 3) -> None:
        super().__init__()
        if terms < 3:
            raise InputError(f"terms must be at least 3, not {terms}: fewer are affine (see slaf_paper)")
        self.coefficients = nn.Parameter(torch.tensor([0.0, 0.5, 0.25] + [0.0] * (terms - 3)))

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the polynomial."""
        return slaf(x, self.coefficients)
