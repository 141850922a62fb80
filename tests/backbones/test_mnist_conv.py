import pytest
import torch
from torch import nn

from arelu_meta import activations, backbones
from arelu_meta.activations.parameters import activation_modules
from arelu_meta.backbones.mnist_conv import MnistConv
from arelu_meta.errors import InputError


def made(activation: str = "relu", side: int = 28, channels: int = 1, classes: int = 5) -> MnistConv:
    return MnistConv(
        activation=activations.factory(activation), channels=channels, image_size=(side, side), classes=classes
    )


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameters_by_hand():
    """10 (1 * 25 + 1) + 20 (10 * 25 + 1) + 40 (20 * 9 + 1) + 5 (40 + 1), that is 260 + 5,020 + 7,240 + 205."""
    network = made()
    assert [count(part) for part in (network.block1, network.block2, network.block3)] == [260, 5_020, 7_240]
    assert count(network.head) == 205
    assert count(network) == 12_725


def test_arelu_adds_two_parameters_per_activation_layer():
    network = made("arelu")
    assert len(activation_modules(network)) == 3
    assert count(network) - count(made("relu")) == 2 * 3


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("classes", [2, 5, 64])
def test_parameters_for_any_channels_and_classes(channels: int, classes: int):
    """Each more channel adds 10 * 25 weights, each more class 41."""
    assert count(made(channels=channels, classes=classes)) == 12_725 + 250 * (channels - 1) + 41 * (classes - 5)


def test_pools_before_it_activates():
    """As in the authors' code: convolution, pool, activation."""
    for block in (made().block1, made().block2, made().block3):
        assert [type(layer) for layer in block] == [nn.Conv2d, nn.MaxPool2d, nn.ReLU]


@pytest.mark.parametrize("side", [28, 29, 32, 35])
def test_sizes_that_leave_one_pixel(side: int):
    """((side - 4) / 2 - 4) / 2 - 2, halved, rounded down, is 1 for 28 to 35 pixels."""
    first = (side - 4) // 2
    second = (first - 4) // 2
    assert (second - 2) // 2 == 1
    assert made(side=side).features(torch.zeros(2, 1, side, side)).shape == (2, 40)


@pytest.mark.parametrize("side", [26, 27, 36, 41])
def test_other_sizes_are_refused(side: int):
    with pytest.raises(InputError, match=f"28 to 35 pixels a side, not {side}x{side}; resize them by `image_size`, or"):
        made(side=side)


def test_backbones_that_are_named_instead_take_what_is_said_of_them():
    with pytest.raises(InputError, match=r"conv4 \(16 and more\) or resnet18 \(8 and more\)"):
        made(side=16)
    for name, side in (("conv4", 16), ("resnet18", 8)):
        built = backbones.build(
            name, activation=activations.factory("relu"), channels=1, image_size=(side, side), classes=3
        )
        assert built.eval()(torch.zeros(2, 1, side, side)).shape == (2, 3)


def test_equals_the_same_network_in_plain_functions():
    network = made("tanh").double()
    x = torch.randn(3, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    hidden = x
    for block in (network.block1, network.block2, network.block3):
        hidden = torch.tanh(nn.functional.max_pool2d(nn.functional.conv2d(hidden, block[0].weight, block[0].bias), 2))
    assert torch.allclose(network(x), hidden.flatten(1) @ network.head.weight.T + network.head.bias, rtol=1e-10)


def test_maxout_takes_twice_the_channels_and_gives_as_many():
    network = made("maxout")
    assert [block[0].out_channels for block in (network.block1, network.block2, network.block3)] == [20, 40, 80]
    assert network.head.in_features == 40
