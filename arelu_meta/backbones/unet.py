"""`unet`: the U-Net of Buda, Saha and Mazurowski 2019 (arXiv 1906.03720) for the LGG brain MRI slices."""

import torch
from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, conv_block
from arelu_meta.errors import InputError

LEVELS = 4


class UNet(Backbone):
    """Four levels down and up, two 3x3 convolutions with batch norm on each, and a 1x1 convolution as head.

    Input (N, channels, H, W) with sides divisible by 16, output (N, classes, H, W) logits. Widths are 32, 64, 128, 256
    and 512 at the bottom. 18 activations, two in each of nine blocks. 7,763,041 parameters for three channels and one
    class.

    Args:
        activation, channels, image_size, classes: as in `backbones.build`
        filters: channels of the first level, doubled on each of the next
    """

    def __init__(
        self,
        *,
        activation: Factory,
        channels: int,
        image_size: tuple[int, int],
        classes: int,
        filters: int = 32,
    ) -> None:
        super().__init__()
        if any(side % 2**LEVELS or side < 1 for side in image_size):
            raise InputError(
                f"unet takes images with sides divisible by {2**LEVELS}, not {image_size[0]}x{image_size[1]}"
            )
        widths = [filters * 2**level for level in range(LEVELS + 1)]
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(
            _block(inputs, width, activation) for inputs, width in zip([channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in reversed(widths[:-1]))
        self.join = nn.ModuleList(_block(2 * width, width, activation) for width in reversed(widths[:-1]))
        self.head = nn.Conv2d(filters, classes, 1)

    def features(self, x: Tensor) -> Tensor:
        """Give the map before the head, (N, filters, H, W)."""
        x = self.down[0](x)
        levels = []
        for block in list(self.down)[1:]:
            levels.append(x)
            x = block(self.pool(x))
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), levels.pop()], 1))
        return x


def _block(inputs: int, outputs: int, activation: Factory) -> nn.Sequential:
    return nn.Sequential(
        conv_block(inputs, outputs, 3, activation=activation), conv_block(outputs, outputs, 3, activation=activation)
    )
