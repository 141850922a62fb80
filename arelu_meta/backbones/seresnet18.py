"""`seresnet18`: ResNet-18 with squeeze-and-excitation, for 32x32 images (Hu et al. 2017, arXiv 1709.01507)."""

from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.resnet18 import ResidualBlock, ResNet18
from arelu_meta.backbones.widths import input_multiple

REDUCTION = 16


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

    def make_gate(self, width: int, activation: Factory) -> nn.Module:
        """Make the squeeze-and-excitation of this block."""
        return SqueezeExcite(width, activation=activation)


class SEResNet18(ResNet18):
    """ResNet-18 with a squeeze-and-excitation in every block: 25 activations, one more per block than ResNet-18.

    11,263,042 parameters for three channels and ten classes.
    """

    name = "seresnet18"
    block = SEResidualBlock
