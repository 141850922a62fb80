"""ACON: a smooth switch between two lines, per channel (Ma et al. 2021, "Activate or Not", arXiv 2009.04759).

f(x) = (p1 - p2) x sigmoid(beta (p1 - p2) x) + p2 x; large beta gives max(p1 x, p2 x), beta = 0 the mean of the two.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, fx, nn

from arelu_meta.activations.channels import ChannelActivation, channel_means, spread

REDUCTION = 16  # the authors': channels for each hidden number of Meta-ACON
fx.wrap("acon")
fx.wrap("switch")


def acon(x: Tensor, p1: Tensor, p2: Tensor, beta: Tensor, channels_last: bool = False) -> Tensor:
    """Compute ACON-C.

    Args:
        x: input, (N, C, ...), or (N, ..., C) with `channels_last`
        p1, p2: the two slopes, (C,) or (1,)
        beta: how sharply it switches between them, (C,), (1,) or (N, C)
        channels_last: where the channels are

    >>> one, zero = torch.ones(1), torch.zeros(1)
    >>> acon(torch.tensor([[-1.0, 2.0]]), one, zero, 50 * one).round(decimals=4)  # nearly ReLU
    tensor([[-0., 2.]])
    """
    slope = spread(p2, x, channels_last)
    rest = (spread(p1, x, channels_last) - slope) * x
    return rest * torch.sigmoid(spread(beta, x, channels_last) * rest) + slope * x


class ACONC(ChannelActivation):
    """ACON-C: p1, p2 and beta are learned, three numbers per channel.

    It starts as Swish (p1 = 1, p2 = 0, beta = 1); the authors' code draws p1 and p2, which would start every seed and
    layer with another function.

    Args:
        channels: channels of its input; 1: one set of numbers for all
        p1, p2, beta: where they start

    >>> torch.allclose(ACONC()(torch.tensor([[-2.0, 3.0]])), F.silu(torch.tensor([[-2.0, 3.0]])))
    True
    """

    def __init__(self, channels: int = 1, p1: float = 1.0, p2: float = 0.0, beta: float = 1.0) -> None:
        super().__init__(channels)
        self.p1, self.p2, self.beta = (nn.Parameter(torch.full((channels,), float(start))) for start in (p1, p2, beta))

    def forward(self, x: Tensor) -> Tensor:
        """Apply it channel by channel."""
        return acon(x, self.p1, self.p2, self.beta, self.channels_last)


def switch(x: Tensor, squeeze: Tensor, expand: Tensor, channels: int, channels_last: bool) -> Tensor:
    """Compute Meta-ACON's beta of each image and channel, (N, C): sigmoid(W1 W2 m), m the channels' means.

    Args:
        x: input
        squeeze: W2, (hidden, C)
        expand: W1, (C, hidden)
        channels: C; 1: one beta per image, from the mean over all channels
        channels_last: where the channels are
    """
    return torch.sigmoid(F.linear(F.linear(channel_means(x, channels, channels_last), squeeze), expand))


class MetaACON(ChannelActivation):
    """Meta-ACON: ACON-C whose beta is computed from the image, channel by channel.

    W1 starts at zero, so that beta starts at one half for every image; the first step moves it.

    Args:
        channels: channels of its input; 1: one beta per image and one p1 and p2, for any number of channels
        p1, p2: where the slopes start
        reduction: W1 W2 has rank channels / reduction, at least 1

    >>> MetaACON(64).squeeze.shape
    torch.Size([4, 64])
    """

    def __init__(self, channels: int = 1, p1: float = 1.0, p2: float = 0.0, reduction: int = REDUCTION) -> None:
        super().__init__(channels)
        self.reduction = reduction
        self.squeeze, self.expand = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.zeros(1, 1))
        self.p1, self.p2 = (nn.Parameter(torch.full((channels,), float(start))) for start in (p1, p2))
        if channels > 1:
            self.set_channels(channels, Generator().manual_seed(torch.initial_seed()))

    def set_channels(self, channels: int, random: Generator) -> None:
        """Give every channel its slopes, and draw W2 as torch draws a linear layer's weights."""
        hidden, like = max(1, channels // self.reduction), self.squeeze
        drawn = torch.empty(hidden, channels, device="cpu").uniform_(-1, 1, generator=random) / channels**0.5
        super().set_channels(channels, random)
        self.squeeze = nn.Parameter(drawn.to(like))
        self.expand = nn.Parameter(torch.zeros(channels, hidden).to(like))

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to each image by its own beta."""
        beta = switch(x, self.squeeze, self.expand, self.channels, self.channels_last)
        return acon(x, self.p1, self.p2, beta, self.channels_last)
