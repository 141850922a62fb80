"""Dynamic ReLU (Chen et al. 2020, arXiv 2003.10027): the larger of two lines that the image itself chooses.

DY-ReLU-B, the variant with lines for each channel: f(x) = max(a1 x + b1, a2 x + b2) with a1 = 1 + d1, a2 = d2,
b1 = d3 / 2, b2 = d4 / 2, and d = 2 sigmoid(V relu(U m + u) + v) - 1 of the channels' means m.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, fx, nn

from arelu_meta.activations.channels import ChannelActivation, channel_means, spread

REDUCTION = 8  # the paper's: channels for each hidden unit
LINES = 4  # numbers of the two lines: a1, a2, b1, b2
fx.wrap("channel_means")
fx.wrap("dynamic_relu")


def dynamic_relu(x: Tensor, coefficients: Tensor, channels_last: bool = False) -> Tensor:
    """Compute the larger of two lines.

    Args:
        x: input, (N, C, ...), or (N, ..., C) with `channels_last`
        coefficients: d in [-1, 1], (N, 4 C): those of a1, of a2, of b1 and of b2
        channels_last: where the channels are

    >>> dynamic_relu(torch.tensor([[-2.0, 3.0]]), torch.zeros(1, 8))
    tensor([[0., 3.]])
    """
    a1, a2, b1, b2 = [spread(part, x, channels_last) for part in coefficients.chunk(4, -1)]
    return torch.maximum((1 + a1) * x + b1 / 2, a2 * x + b2 / 2)


class DynamicReLU(ChannelActivation):
    """DY-ReLU-B; V and v start at zero, where it is ReLU for every image.

    Args:
        channels: channels of its input; 1: one pair of lines per image, from the mean over all channels
        reduction: channels for each of the hidden units

    >>> DynamicReLU(64).hidden_weight.shape
    torch.Size([8, 64])
    """

    def __init__(self, channels: int = 1, reduction: int = REDUCTION) -> None:
        super().__init__(channels)
        self.reduction = reduction
        self.hidden_weight, self.hidden_bias = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.ones(1))
        self.weight, self.bias = nn.Parameter(torch.zeros(LINES, 1)), nn.Parameter(torch.zeros(LINES))
        if channels > 1:
            self.set_channels(channels, Generator().manual_seed(torch.initial_seed()))

    def set_channels(self, channels: int, random: Generator) -> None:
        """Draw the hidden layer as torch draws a linear layer's weights; the one after it stays at zero."""
        self.channels, hidden, like = channels, max(1, channels // self.reduction), self.weight
        drawn = torch.empty(hidden, channels + 1, device="cpu").uniform_(-1, 1, generator=random) / channels**0.5
        self.hidden_weight = nn.Parameter(drawn[:, 1:].contiguous().to(like))
        self.hidden_bias = nn.Parameter(drawn[:, 0].contiguous().to(like))
        self.weight = nn.Parameter(torch.zeros(LINES * channels, hidden).to(like))
        self.bias = nn.Parameter(torch.zeros(LINES * channels).to(like))

    def forward(self, x: Tensor) -> Tensor:
        """Choose the lines of each image and apply them."""
        means = channel_means(x, self.channels, self.channels_last)
        hidden = F.relu(F.linear(means, self.hidden_weight, self.hidden_bias))
        coefficients = 2 * torch.sigmoid(F.linear(hidden, self.weight, self.bias)) - 1
        return dynamic_relu(x, coefficients, self.channels_last)
