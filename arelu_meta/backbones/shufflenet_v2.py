"""`shufflenet_v2`: ShuffleNet of version 2 at width 1.0, for 32x32 images (Ma et al. 2018, arXiv 1807.11164)."""

import torch
from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, check_halvings, conv_block, conv_norm

STEM, LAST = 24, 1024
STAGES = ((116, 4), (232, 8), (464, 4))  # width and number of blocks


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Deal the channels of each group out in turn, so that the next split mixes them; (N, C, H, W) -> the same.

    >>> channel_shuffle(torch.arange(4.0).view(1, 4, 1, 1), 2).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)


class ShuffleUnit(nn.Module):
    """Split the channels, transform one half, join and shuffle: (N, width, H, W) -> the same. Two activations."""

    def __init__(self, width: int, *, activation: Factory) -> None:
        super().__init__()
        self.branch = _branch(width // 2, width // 2, 1, activation)

    def forward(self, x: Tensor) -> Tensor:
        """Leave the first half as it is."""
        kept, changed = x.chunk(2, 1)
        return channel_shuffle(torch.cat([kept, self.branch(changed)], 1), 2)


class DownUnit(nn.Module):
    """Two branches of stride 2, joined and shuffled: (N, inputs, H, W) -> (N, width, H/2, W/2). Three activations."""

    def __init__(self, inputs: int, width: int, *, activation: Factory) -> None:
        super().__init__()
        half = width // 2
        self.shortcut = nn.Sequential(
            conv_norm(inputs, inputs, 3, stride=2, groups=inputs), conv_block(inputs, half, 1, activation=activation)
        )
        self.branch = _branch(inputs, half, 2, activation)

    def forward(self, x: Tensor) -> Tensor:
        """Join both branches and shuffle."""
        return channel_shuffle(torch.cat([self.shortcut(x), self.branch(x)], 1), 2)


class ShuffleNetV2(Backbone):
    """A 3x3 stem of stride 1 without pooling, three stages of 4, 8, 4 units, a 1x1 convolution, and a linear head.

    Input (N, channels, H, W) of at least 8x8, output (N, classes) logits. 37 activations: three in the first unit of
    each stage, two in each of the 13 other units, the stem's and the last convolution's. 1,263,854 parameters for three
    channels and ten classes.
    """

    def __init__(self, *, activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        check_halvings("shufflenet_v2", image_size, len(STAGES))
        self.stem = conv_block(channels, STEM, 3, activation=activation)
        units: list[nn.Module] = []
        inputs = STEM
        for width, count in STAGES:
            units.append(DownUnit(inputs, width, activation=activation))
            units.extend(ShuffleUnit(width, activation=activation) for _ in range(count - 1))
            inputs = width
        self.stages = nn.Sequential(*units)
        self.last = conv_block(inputs, LAST, 1, activation=activation)
        self.head = nn.Linear(LAST, classes)

    def features(self, x: Tensor) -> Tensor:
        """Give the features before the head, (N, 1024)."""
        return self.last(self.stages(self.stem(x))).mean((2, 3))


def _branch(inputs: int, outputs: int, stride: int, activation: Factory) -> nn.Sequential:
    return nn.Sequential(
        conv_block(inputs, outputs, 1, activation=activation),
        conv_norm(outputs, outputs, 3, stride=stride, groups=outputs),
        conv_block(outputs, outputs, 1, activation=activation),
    )
