"""PAU: the Padé activation unit, a learned rational function (Molina et al. 2019, arXiv 1907.06732)."""

import torch
from torch import Tensor, fx, nn

fx.wrap("pau")  # goes through its coefficients

# Least-squares fit of leaky ReLU (slope 0.01) on 2,001 points of [-3, 3]: RMS error 0.0050, largest 0.030, at 0.
NUMERATOR_START = (0.029803, 0.618385, 2.322324, 3.049222, 1.483394, 0.250562)
DENOMINATOR_START = (1.141536, 4.389169, 0.870328, 0.346548)


def pau(x: Tensor, numerator: Tensor, denominator: Tensor) -> Tensor:
    """Compute sum a_i x^i / (1 + sum |b_j| |x|^j), i = 0..5 and j = 1..4: no poles, thanks to the absolute values.

    Args:
        x: input of any shape
        numerator: a, (6,)
        denominator: b, (4,)

    >>> pau(torch.tensor([3.0]), torch.tensor([0.0, 1, 0, 0, 0, 0]), torch.tensor([1.0, 0, 0, 0])).item()
    0.75
    """
    # TorchScript knows neither starred names nor `reversed`.
    a, b = numerator.to(x.dtype).unbind(), denominator.to(x.dtype).abs().unbind()
    above = a[-1] * torch.ones_like(x)
    for coefficient in a[-2::-1]:
        above = above * x + coefficient
    size = x.abs()
    below = torch.zeros_like(x)
    for coefficient in b[::-1]:
        below = (below + coefficient) * size
    return above / (1 + below)


class PAU(nn.Module):
    """A rational function of degree 5 over 4, ten parameters per layer, started near leaky ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.numerator = nn.Parameter(torch.tensor(NUMERATOR_START))
        self.denominator = nn.Parameter(torch.tensor(DENOMINATOR_START))

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the quotient."""
        return pau(x, self.numerator, self.denominator)
