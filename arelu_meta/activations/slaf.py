"""SLAF: a self-learnable activation, a polynomial with learned coefficients (Goyal et al. 2019, arXiv 1906.09529)."""

import torch
from torch import Tensor, fx, nn

from arelu_meta.errors import InputError

fx.wrap("slaf")  # goes through its coefficients


def slaf(x: Tensor, coefficients: Tensor) -> Tensor:
    """Compute a_0 + a_1 x + a_2 x^2 + ... by Horner's rule; `coefficients` is (terms,), x of any shape.

    >>> slaf(torch.tensor([2.0]), torch.tensor([1.0, 0.0, 3.0])).item()
    13.0
    """
    values = coefficients.to(x.dtype).unbind()  # TorchScript knows neither starred names nor `reversed`
    result = values[-1] * torch.ones_like(x)
    for coefficient in values[-2::-1]:
        result = result * x + coefficient
    return result


class SLAF(nn.Module):
    """A polynomial of `terms` coefficients; three are the fewest that are not affine.

    Starts at x/2 + x^2/4, the Taylor polynomial of swish at zero; further coefficients start at zero. The start is
    ours.

    Args:
        terms: number of coefficients, 3 or more
    """

    def __init__(self, terms: int = 3) -> None:
        super().__init__()
        if terms < 3:
            raise InputError(f"terms must be at least 3, not {terms}: fewer are affine (see slaf_paper)")
        self.coefficients = nn.Parameter(torch.tensor([0.0, 0.5, 0.25] + [0.0] * (terms - 3)))

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the polynomial."""
        return slaf(x, self.coefficients)


class SLAFPaper(nn.Module):
    """A polynomial of two terms started at 1 + x, as coded by Chen: affine, so the layer adds no non-linearity."""

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        """Compute a0 + a1 x."""
        constant, slope = self.coefficients.to(x.dtype).unbind()
        return constant + slope * x
