"""What our networks are made of: features and head, the block of convolution, batch norm and activation, and widths."""

from abc import abstractmethod

from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.errors import InputError


class Backbone(nn.Module):
    """A network of two stages: `features` of the images, and a `head` that gives the logits of the features.

    All take the arguments of `backbones.build`: `activation` is called once for each activation of the network.
    """

    head: nn.Module

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Give the features before the head, (N, width); of a segmentation network (N, width, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        """Give the logits, (N, classes); of a segmentation network (N, classes, H, W)."""
        return self.head(self.features(x))


def input_multiple(activation: nn.Module) -> int:
    """Channels the activation takes for each one it gives: the number of pieces for Maxout, one for all others.

    >>> from arelu_meta import activations
    >>> input_multiple(activations.build("maxout")), input_multiple(activations.build("arelu"))
    (2, 1)
    """
    return int(getattr(activation, "input_multiple", 1))


def conv_block(
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    activation: Factory,
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
) -> nn.Sequential:
    """Make a convolution with batch norm and a fresh activation, (N, inputs, H, W) -> (N, outputs, H/s, W/s).

    For Maxout the convolution and its norm are as many times wider as the activation has pieces.
    """
    act = activation()
    width = outputs * input_multiple(act)
    return nn.Sequential(*conv_norm(inputs, width, kernel, stride=stride, groups=groups, bias=bias), act)


def conv_norm(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Sequential:
    """Make a convolution that keeps the size (but for its stride), and batch norm with running statistics."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=bias)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def check_halvings(name: str, image_size: tuple[int, int], halvings: int) -> None:
    """Refuse an image that is used up before the network has halved it as often as it does."""
    smallest = 2**halvings
    if min(image_size) < smallest:
        raise InputError(
            f"{name} halves the image {halvings} times; {image_size[0]}x{image_size[1]} is below {smallest}x{smallest}"
            "; resize it by `image_size`"
        )
