"""ELSA: the paper's element-wise sign-based attention as such, to be added to any activation."""

import torch
from torch import Tensor, fx, nn

from arelu_meta import activations
from arelu_meta.activations.arelu import ALPHA_START, BETA_START, Clamp, SlopeParameters
from arelu_meta.errors import InputError
from arelu_meta.kernels.two_slopes import two_slopes

fx.wrap("two_slopes")


class ELSA(SlopeParameters):
    """Attention C(alpha) x below zero and sigmoid(beta) x from zero on, plus `base(x)` when a base is given.

    With `base="relu"` it is AReLU (equation 3 of arXiv 2006.13858).

    Args:
        base: any activation, as in `activations.build`; it keeps its own parameters. None: the attention alone
        alpha: start of the attention's slope below zero
        beta: start of beta; the attention's slope from zero on is sigmoid(beta)
        clamp: as in `AReLU`

    >>> x = torch.linspace(-2, 2, 5)
    >>> torch.equal(ELSA(base="relu")(x), activations.build("arelu")(x))
    True
    """

    def __init__(
        self,
        base: "activations.Activation | None" = None,
        alpha: float = ALPHA_START,
        beta: float = BETA_START,
        clamp: Clamp = "hard",
    ) -> None:
        super().__init__(alpha, beta, clamp)
        self.base: nn.Module | None = None if base is None else activations.build(base)
        if getattr(self.base, "input_multiple", 1) != 1:
            raise InputError(
                f"{base!r} has fewer outputs than inputs, to which no attention can be added; choose another"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the attention and add the base."""
        attention = two_slopes(x, self.negative_slope, torch.sigmoid(self.beta))
        if self.base is None:
            return attention
        return self.base(x) + attention
