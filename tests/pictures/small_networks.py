"""Networks whose maps and gradients can be worked out on paper, and images for them."""

import torch
from torch import Tensor, nn

from arelu_meta import activations, backbones


def fill(parameter: nn.Parameter, values: object) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(values))


def tiny() -> nn.Module:
    """Two maps A = (x, -x) by a 1x1 convolution, then a linear head of two classes on all eight pixels."""
    network = nn.Sequential()
    network.add_module("conv", nn.Conv2d(1, 2, 1, bias=False))
    network.add_module("flat", nn.Flatten())
    network.add_module("head", nn.Linear(8, 2, bias=False))
    fill(network.conv.weight, [[[[1.0]]], [[[-1.0]]]])
    fill(network.head.weight, [[4.0, 0, 0, 0, 1, 1, 1, 1], [0.0, 0, 0, 0, 2, 2, 2, 2]])
    return network


def net(activation: str, name: str = "conv4", side: int = 16, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return backbones.build(
        name,
        activation=activations.factory(activation),
        channels=3,
        image_size=(side, side),
        classes=4,
        **options,
    )


def images(n: int, side: int = 16) -> Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(0))
