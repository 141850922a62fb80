"""`squeezenet`: SqueezeNet 1.0 with batch norm, for 32x32 images (Iandola et al. 2016, arXiv 1602.07360)."""

import torch
from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, check_halvings, conv_block

STAGES = (((16, 128), (16, 128), (32, 256)), ((32, 256), (48, 384), (48, 384), (64, 512)), ((64, 512),))


class Fire(nn.Module):
    """Squeeze by 1x1, expand by 1x1 and 3x3 in parallel: (N, inputs, H, W) -> (N, outputs, H, W). Three activations."""

    def __init__(self, inputs: int, squeeze: int, outputs: int, *, activation: Factory) -> None:
        super().__init__()
        self.squeeze = conv_block(inputs, squeeze, 1, activation=activation, bias=True)
        self.expand1 = conv_block(squeeze, outputs // 2, 1, activation=activation, bias=True)
        self.expand3 = conv_block(squeeze, outputs // 2, 3, activation=activation, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Join both expansions."""
        x = self.squeeze(x)
        return torch.cat([self.expand1(x), self.expand3(x)], 1)


class SqueezeNet(Backbone):
    """A 3x3 stem of 96 channels, eight fire modules in three stages, a 2x2 max-pool before each, and a linear head.

    Input (N, channels, H, W) of at least 8x8, output (N, classes) logits. The original's last 1x1 convolution and the
    plane's mean after it are a linear head on the mean: the same numbers for less work. As in the CIFAR ports there is
    batch norm, which the original lacks, and no dropout, which it has. 25 activations: the stem's and
    three per module. 734,986 parameters for three channels and ten classes, 5,952 of them batch norm's.
    """

    def __init__(self, *, activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        check_halvings("squeezenet", image_size, len(STAGES))
        self.stem = conv_block(channels, 96, 3, activation=activation, bias=True)
        layers: list[nn.Module] = []
        inputs = 96
        for stage in STAGES:
            layers.append(nn.MaxPool2d(2))
            for squeeze, outputs in stage:
                layers.append(Fire(inputs, squeeze, outputs, activation=activation))
                inputs = outputs
        self.stages = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def features(self, x: Tensor) -> Tensor:
        """Give the features before the head, (N, 512)."""
        return self.stages(self.stem(x)).mean((2, 3))
