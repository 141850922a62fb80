import pytest
import torch
import torch.nn.functional as F
from torch import nn

from arelu_meta import activations
from arelu_meta.backbones.conv4 import Conv4
from arelu_meta.backbones.norm import BatchStatisticsNorm
from arelu_meta.errors import InputError


def made(activation: str = "relu", *, channels: int = 1, side: int = 28, classes: int = 5, **options) -> Conv4:
    return Conv4(
        activation=activations.factory(activation),
        channels=channels,
        image_size=(side, side),
        classes=classes,
        **options,
    )


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameters_by_hand():
    """Convolutions 64 (9 + 1) and three of 64 (64 * 9 + 1), norms 4 * 128, head 5 (64 + 1): 28 leaves one pixel."""
    network = made()
    convolutions = 64 * (9 + 1) + 3 * 64 * (64 * 9 + 1)
    assert count(network.blocks) == convolutions + 4 * 128 == 111_936
    assert count(network.head) == 325
    assert count(made(norm="none")) == count(network) - 4 * 128
    assert count(made(norm="group")) == count(network)


@pytest.mark.parametrize(("side", "left"), [(16, 1), (28, 1), (32, 2), (84, 5)])
def test_head_takes_what_four_halvings_leave(side: int, left: int):
    network = made(side=side, filters=8)
    assert network.head.in_features == 8 * left**2
    assert network(torch.randn(2, 1, side, side)).shape == (2, 5)


def test_smaller_images_are_refused():
    with pytest.raises(InputError, match="15x15 is below 16x16"):
        made(side=15)


@pytest.mark.parametrize(
    ("norm", "layer"), [("batch", BatchStatisticsNorm), ("group", nn.GroupNorm), ("none", nn.Identity)]
)
def test_order_in_a_block(norm: str, layer: type[nn.Module]):
    """Convolution, norm, activation, pool: the order of Finn et al."""
    for block in made(norm=norm).blocks:
        assert [type(part) for part in block] == [nn.Conv2d, layer, nn.ReLU, nn.MaxPool2d]


def test_equals_torchs_functions():
    network = made("tanh", filters=8).double()
    x = torch.randn(6, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    hidden = x
    for convolution, *_ in network.blocks:
        hidden = F.conv2d(hidden, convolution.weight, convolution.bias, padding=1)
        hidden = F.max_pool2d(torch.tanh(F.batch_norm(hidden, None, None, training=True)), 2)
    assert torch.allclose(network(x), F.linear(hidden.flatten(1), network.head.weight, network.head.bias), rtol=1e-8)


def test_batch_norm_is_transductive_group_norm_is_not():
    """With batch statistics an image's logits depend on the images beside it, with group norm they do not."""
    x = torch.randn(4, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for norm, depends in (("batch", True), ("group", False), ("none", False)):
        network = made(norm=norm, filters=8).double()
        assert torch.allclose(network(x)[:2], network(x[:2]), rtol=1e-8) != depends


def test_maxout_doubles_the_filters_before_it():
    network = made("maxout", filters=8)
    assert [block[0].out_channels for block in network.blocks] == [16] * 4
    assert network.head.in_features == 8
