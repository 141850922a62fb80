"""`mobilenet`: MobileNet of version 1, for 32x32 images (Howard et al. 2017, arXiv 1704.04861)."""

from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, check_halvings, conv_block

# (outputs, stride) of the 13 depthwise separable blocks; 32 -> 16 -> 8 -> 4 -> 2 pixels.
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


class MobileNet(Backbone):
    """A 3x3 stem of stride 1, 13 depthwise separable blocks, and a linear head.

    Input (N, channels, H, W) of at least 16x16, output (N, classes) logits. 27 activations: the stem's and two per
    block. 3,217,226 parameters for three channels and ten classes.
    """

    def __init__(self, *, activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        check_halvings("mobilenet", image_size, 4)
        width = 32
        layers = [conv_block(channels, width, 3, activation=activation)]
        for outputs, stride in BLOCKS:
            layers.append(conv_block(width, width, 3, stride=stride, groups=width, activation=activation))
            layers.append(conv_block(width, outputs, 1, activation=activation))
            width = outputs
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Give the features before the head, (N, 1024)."""
        return self.blocks(x).mean((2, 3))
