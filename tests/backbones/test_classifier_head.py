"""The head is found by what runs, not by its name."""

import pytest
import torch
from torch import nn

from arelu_meta.backbones.classifier_head import find_head, replace_head
from arelu_meta.errors import InputError
from tests import tiny_networks

X = torch.rand(2, 3, 16, 16)


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (tiny_networks.tiny, "head"),
        (tiny_networks.convolutional_head, "2"),
        (tiny_networks.hidden_of_the_same_width, "3"),
    ],
)
def test_found(make, path):
    assert find_head(make(), X) == path


def test_several_are_refused_with_the_candidates():
    with pytest.raises(InputError, match=r"2 layers have 5 outputs; name it by `head`; candidates: left, right"):
        find_head(tiny_networks.two_heads(), X)
    assert find_head(tiny_networks.two_heads(), X, named="right") == "right"
    with pytest.raises(InputError, match=r"`head` body: no linear layer or 1x1 convolution .*; candidates: left"):
        find_head(tiny_networks.two_heads(), X, named="body")


def test_none_is_refused():
    with pytest.raises(InputError, match="no layer gives the logits; name it by `head`; candidates: none"):
        find_head(nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), X)


def test_looking_leaves_no_trace():
    network = tiny_networks.tiny().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    find_head(network, X)
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize(("make", "path"), [(tiny_networks.tiny, "head"), (tiny_networks.convolutional_head, "2")])
def test_replaced_by_the_seed(make, path):
    torch.manual_seed(0)
    one, same, other = make(), make(), make()
    for network, seed in ((one, 4), (same, 4), (other, 5)):
        replace_head(network, path, classes=9, seed=seed)
        assert network(X).shape == (2, 9)
    weights = [network.get_submodule(path).weight for network in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
