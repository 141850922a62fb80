"""`vgg11` and `vgg13`: VGG with batch norm, for 32x32 images (Simonyan and Zisserman 2014, arXiv 1409.1556)."""

from typing import ClassVar

from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, check_halvings, conv_block


class Vgg(Backbone):
    """Five stages of 3x3 convolution, batch norm and activation, each max-pooled by 2, and a linear head.

    Input (N, channels, H, W) of at least 32x32, output (N, classes) logits. The two layers of 4096 units of the
    ImageNet version are left out, as in the CIFAR ports: what reaches the head is the plane's mean, (N, 512).
    """

    name: ClassVar[str]
    stages: ClassVar[tuple[tuple[int, ...], ...]]  # widths of the convolutions, stage by stage

    def __init__(self, *, activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        check_halvings(self.name, image_size, len(self.stages))
        layers: list[nn.Module] = []
        for widths in self.stages:
            for width in widths:
                layers.append(conv_block(channels, width, 3, activation=activation, bias=True))
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def features(self, x: Tensor) -> Tensor:
        """Give the features before the head, (N, 512)."""
        return self.blocks(x).mean((2, 3))  # 32 -> 16 -> 8 -> 4 -> 2 -> 1


class Vgg11(Vgg):
    """VGG with eight convolutions: 8 activations; 9,231,114 parameters for three channels and ten classes."""

    name = "vgg11"
    stages = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class Vgg13(Vgg):
    """VGG with ten convolutions: 10 activations; 9,416,010 parameters for three channels and ten classes."""

    name = "vgg13"
    stages = ((64, 64), (128, 128), (256, 256), (512, 512), (512, 512))
