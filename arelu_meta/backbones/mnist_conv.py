"""`mnist_conv`: the small network of the AReLU paper's MNIST, transfer and meta-learning experiments."""

from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, input_multiple
from arelu_meta.errors import InputError


class MnistConv(Backbone):
    """Convolutions of 10, 20, 40 channels (kernels 5, 5, 3), each max-pooled by 2 and then activated, and a linear
    head.

    Input (N, channels, 28, 28) or (N, channels, 32, 32), output (N, classes) logits. Without activation parameters:
    12,725 parameters for one channel and five classes.
    """

    def __init__(self, *, activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        if any(side not in range(28, 36) for side in image_size):
            raise InputError(
                f"mnist_conv takes images of 28 to 35 pixels a side, not {image_size[0]}x{image_size[1]}; resize them "
                f"by `image_size`, or set `backbone` to conv4 (16 and more) or resnet18 (8 and more)"
            )
        self.block1 = _block(channels, 10, 5, activation)  # 28 -> 24 -> 12;  32 -> 28 -> 14
        self.block2 = _block(10, 20, 5, activation)  # 12 -> 8 -> 4;    14 -> 10 -> 5
        self.block3 = _block(20, 40, 3, activation)  # 4 -> 2 -> 1;     5 -> 3 -> 1
        self.head = nn.Linear(40, classes)

    def features(self, x: Tensor) -> Tensor:
        """Give the 40 features before the head, (N, 40)."""
        return self.block3(self.block2(self.block1(x))).flatten(1)


def _block(channels: int, width: int, kernel: int, activation: Factory) -> nn.Sequential:
    act = activation()
    return nn.Sequential(nn.Conv2d(channels, width * input_multiple(act), kernel), nn.MaxPool2d(2), act)
