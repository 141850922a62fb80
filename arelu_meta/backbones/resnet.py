"""`resnet18` and `seresnet18`: the residual network of 18 layers, for 32x32 images (He et al. 2015, arXiv 1512.03385),
and with squeeze-and-excitation (Hu et al. 2017, arXiv 1709.01507)."""

from typing import ClassVar

from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, check_halvings, conv_block, conv_norm, input_multiple

REDUCTION = 16  # of the channels, inside a squeeze-and-excitation


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, (N, inputs, H, W) -> (N, outputs, H/stride, W/stride).

    The second activation stands after the sum. For Maxout the residual has all the pieces and each gets the same
    shortcut: max over k of (residual_k + shortcut).
    """

    gated: ClassVar[bool] = False
    """whether the residual passes a squeeze-and-excitation before the sum"""

    def __init__(self, inputs: int, outputs: int, stride: int, *, activation: Factory) -> None:
        super().__init__()
        act = activation()
        self.pieces = input_multiple(act)
        width = outputs * self.pieces
        self.conv1 = conv_block(inputs, outputs, 3, stride=stride, activation=activation)
        self.conv2 = conv_norm(outputs, width, 3)
        self.gate = SqueezeExcite(width, activation=activation) if self.gated else nn.Identity()
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = conv_norm(inputs, outputs, 1, stride=stride)
        self.act = act  # last, so that layers are listed in the order they are passed

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the shortcut and activate."""
        shortcut = self.shortcut(x)
        if self.pieces > 1:
            shortcut = shortcut.repeat_interleave(self.pieces, 1)
        return self.act(self.gate(self.conv2(self.conv1(x))) + shortcut)


class ResNet18(Backbone):
    """A 3x3 stem of stride 1 without pooling, four stages of two residual blocks, and a linear head.

    Input (N, channels, H, W) of at least 8x8, output (N, classes) logits. 17 activations: the stem's and two per block.
    11,173,962 parameters for three channels and ten classes.
    """

    name: ClassVar[str] = "resnet18"
    block: ClassVar[type[ResidualBlock]] = ResidualBlock

    def __init__(self, *, activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        check_halvings(self.name, image_size, 3)
        self.stem = conv_block(channels, 64, 3, activation=activation)
        stages, inputs = [], 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):  # 32 -> 16 -> 8 -> 4 pixels
            first = self.block(inputs, outputs, stride, activation=activation)
            stages.append(nn.Sequential(first, self.block(outputs, outputs, 1, activation=activation)))
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)

    def features(self, x: Tensor) -> Tensor:
        """Give the features before the head, (N, 512)."""
        return self.stages(self.stem(x)).mean((2, 3))


class SqueezeExcite(nn.Module):
    """Scale each channel by a gate computed from all channel means, (N, C, H, W) -> the same.

    gate = sigmoid(W2 activation(W1 mean(x))), with C / 16 hidden units. The sigmoid is part of the gate and stays.
    """

    def __init__(self, channels: int, *, activation: Factory) -> None:
        super().__init__()
        hidden = channels // REDUCTION
        act = activation()
        self.squeeze = nn.Linear(channels, hidden * input_multiple(act))
        self.act = act
        self.excite = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply the channels by their gates."""
        gates = self.excite(self.act(self.squeeze(x.mean((2, 3))))).sigmoid()  # (N, C)
        return x * gates[:, :, None, None]


class SEResidualBlock(ResidualBlock):
    """A residual block whose residual is gated before the sum."""

    gated = True


class SEResNet18(ResNet18):
    """ResNet-18 with a squeeze-and-excitation in every block: 25 activations, one more per block than ResNet-18.

    11,263,042 parameters for three channels and ten classes.
    """

    name = "seresnet18"
    block = SEResidualBlock
