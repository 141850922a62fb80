"""AReLU: ReLU plus learnable, element-wise sign-based attention (Chen, Li, Xu 2020, arXiv 2006.13858)."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, fx, nn

from arelu_meta.errors import InputError, unknown
from arelu_meta.kernels.two_slopes import two_slopes

ALPHA_START, BETA_START = 0.9, 2.0
ALPHA_LOW, ALPHA_HIGH = 0.01, 0.99
Clamp = Literal["hard", "straight_through", "sigmoid"]
fx.wrap("two_slopes")  # one call in a traced network, which chooses its kernel when it runs


def arelu(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """Compute AReLU: C(alpha) x for x < 0, (1 + sigmoid(beta)) x for x >= 0, with C clamping to [0.01, 0.99].

    Gradients, as in section 3 of the paper: C(alpha) or 1 + sigmoid(beta) for x; the sum of x over x < 0 for alpha,
    nothing when alpha is outside its interval; sigmoid(beta) (1 - sigmoid(beta)) times the sum of x over x >= 0 for
    beta.

    Args:
        x: input of any shape
        alpha: slope below zero, before its clamp; a scalar
        beta: what sigmoid(beta) is added for above zero; a scalar

    Returns:
        A tensor of the shape of x.

    >>> arelu(torch.tensor([-1.0, 1.0]), torch.tensor(0.9), torch.tensor(0.0))
    tensor([-0.9000, 1.5000])
    """
    return two_slopes(x, bounded_alpha(alpha, "hard"), 1 + torch.sigmoid(beta))


def bounded_alpha(alpha: Tensor, clamp: str, low: float = ALPHA_LOW, high: float = ALPHA_HIGH) -> Tensor:
    """Bring the raw parameter into [0.01, 0.99]; the three ways differ in what gradient they let through.

    `hard`              the paper's: none outside the interval, so alpha that has left it stays out
    `straight_through`  the same values, but the gradient passes as if there were no clamp
    `sigmoid`           0.01 + 0.98 sigmoid(raw): smooth, never quite at the ends

    TorchScript, which compiles this, knows neither the type `Clamp` nor constants of a module: hence the arguments.
    """
    if clamp == "sigmoid":
        return low + (high - low) * torch.sigmoid(alpha)
    bounded = alpha.clamp(low, high)
    return alpha + (bounded - alpha).detach() if clamp == "straight_through" else bounded


def raw_alpha(alpha: float, clamp: Clamp) -> float:
    """Give the raw parameter whose bounded value is `alpha`."""
    if clamp != "sigmoid":
        return alpha
    if not ALPHA_LOW < alpha < ALPHA_HIGH:
        raise InputError(f"alpha must lie between {ALPHA_LOW} and {ALPHA_HIGH} with clamp='sigmoid', not {alpha}")
    share = (alpha - ALPHA_LOW) / (ALPHA_HIGH - ALPHA_LOW)
    return math.log(share / (1 - share))


class SlopeParameters(nn.Module):
    """Hold alpha and beta; `negative_slope` is what alpha multiplies x by, sigmoid(beta) what beta does."""

    def __init__(self, alpha: float = ALPHA_START, beta: float = BETA_START, clamp: Clamp = "hard") -> None:
        super().__init__()
        if clamp not in get_args(Clamp):
            raise unknown("clamp", str(clamp), get_args(Clamp))
        self.clamp: Clamp = clamp
        self.alpha = nn.Parameter(torch.tensor(float(raw_alpha(alpha, clamp))))
        self.beta = nn.Parameter(torch.tensor(float(beta)))

    @property
    def negative_slope(self) -> Tensor:
        """Alpha after its clamp: the slope below zero."""
        return bounded_alpha(self.alpha, self.clamp)

    def extra_repr(self) -> str:
        """Show the clamp in the printed network."""
        return f"clamp={self.clamp!r}"


class AReLU(SlopeParameters):
    """AReLU with two parameters per layer, started at alpha 0.9 and beta 2.0 as the paper advises.

    Args:
        alpha: start of the slope below zero
        beta: start of beta; the slope from zero on is 1 + sigmoid(beta)
        clamp: how alpha is kept in [0.01, 0.99]: "hard" (the paper's), "straight_through", "sigmoid"

    Raises:
        InputError: an unknown clamp, or an alpha outside (0.01, 0.99) with clamp="sigmoid".

    >>> [round(value, 4) for value in AReLU()(torch.tensor([-1.0, 1.0])).tolist()]
    [-0.9, 1.8808]
    """

    @property
    def positive_slope(self) -> Tensor:
        """1 + sigmoid(beta): the slope from zero on."""
        return 1 + torch.sigmoid(self.beta)

    def forward(self, x: Tensor) -> Tensor:
        """Apply AReLU to x element by element."""
        return two_slopes(x, self.negative_slope, self.positive_slope)
