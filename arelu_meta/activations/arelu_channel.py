"""AReLU (Chen et al. 2020, arXiv 2006.13858) with alpha and beta for each channel, as PReLU has its slopes."""

from typing import get_args

import torch
from torch import Tensor, fx, nn

from arelu_meta.activations.arelu import ALPHA_START, BETA_START, Clamp, bounded_alpha, raw_alpha
from arelu_meta.activations.channels import ChannelActivation, spread
from arelu_meta.errors import unknown
from arelu_meta.kernels.two_slopes import two_slopes

fx.wrap("two_slopes")
fx.wrap("spread")


class AReLUChannel(ChannelActivation):
    """AReLU with two parameters per channel, started like `AReLU`.

    Args:
        channels: channels of its input; 1: one alpha and beta for all, which is `AReLU`
        alpha: start of the slopes below zero
        beta: start of beta; the slopes from zero on are 1 + sigmoid(beta)
        clamp: as in `AReLU`

    >>> AReLUChannel(2)(torch.tensor([[-1.0, 1.0]])).tolist()[0][0]
    -0.8999999761581421
    """

    def __init__(
        self, channels: int = 1, alpha: float = ALPHA_START, beta: float = BETA_START, clamp: Clamp = "hard"
    ) -> None:
        super().__init__(channels)
        if clamp not in get_args(Clamp):
            raise unknown("clamp", str(clamp), get_args(Clamp))
        self.clamp: Clamp = clamp
        self.alpha = nn.Parameter(torch.full((channels,), float(raw_alpha(alpha, clamp))))
        self.beta = nn.Parameter(torch.full((channels,), float(beta)))

    def forward(self, x: Tensor) -> Tensor:
        """Apply AReLU with the numbers of each channel."""
        below, above = bounded_alpha(self.alpha, self.clamp), 1 + torch.sigmoid(self.beta)
        return two_slopes(x, spread(below, x, self.channels_last), spread(above, x, self.channels_last))
