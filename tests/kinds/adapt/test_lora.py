"""Low-rank adapters: which layers get them, that they start at nothing, and that merging changes no answer."""

import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from arelu_meta.backbones.features import FeatureNetwork, feature_network
from arelu_meta.errors import InputError
from arelu_meta.kinds.adapt.lora import MARK, RANK, adaptable_layers, add_adapters, merge_adapters
from tests.tiny_networks import tiny

X = torch.rand(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))


class Padded(nn.Conv2d):
    """A convolution that pads by itself, as networks ported from TensorFlow do; of one pixel it is a plain one."""

    def __init__(self, inputs: int, outputs: int, size: int, *, image_size: int) -> None:
        super().__init__(inputs, outputs, size, bias=False)
        self.margin = (size - 1) // 2 if image_size else 0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.pad(x, [self.margin] * 4))


class Standardised(nn.Conv2d):
    """A convolution of standardised weights: a sum of weights is not the sum of its answers."""

    def forward(self, x: Tensor) -> Tensor:
        weight = (self.weight - self.weight.mean()) / self.weight.std()
        return functional.conv2d(x, weight, self.bias)


class Mixed(nn.Module):
    """Layers that can be adapted and layers that cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.padded, self.one = Padded(3, 8, 3, image_size=12), Padded(8, 8, 1, image_size=12)
        self.depthwise, self.wide = nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 6, 3, stride=2, padding=1)
        self.standardised, self.dilated = Standardised(6, 6, 1), nn.Conv2d(6, 6, 2, dilation=2)
        self.hidden, self.unused, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.wide(self.depthwise(self.one(self.padded(x)).relu()))
        x = self.dilated(self.standardised(x)).relu().mean((2, 3))
        return self.head(self.hidden(x).relu())


@pytest.fixture
def body() -> FeatureNetwork:
    torch.manual_seed(0)
    return feature_network(Mixed().eval().requires_grad_(False), X)


def test_layers_that_answer_as_plain_ones_do(body):
    """Not the one that pads, those with groups or dilation, the one that standardises, an unused one, or the head."""
    assert list(adaptable_layers(body, X)) == ["one", "wide", "hidden"]


def test_adapters_start_at_nothing_and_are_merged(body):
    """With factors A, B the weight becomes W + B A, worked out here; the answers with and without merging agree."""
    before = body(X)
    weight = body.network.one.weight.clone()
    add_adapters(body, X, seed=0)
    assert torch.allclose(body(X), before, atol=1e-6)
    factors = {name: value for name, value in body.network.named_parameters() if MARK in name}
    assert len(factors) == 6
    with torch.no_grad():
        for value in factors.values():
            value.normal_(generator=torch.Generator().manual_seed(1))
    moved = body(X)
    assert not torch.allclose(moved, before, atol=1e-2)
    first, second = (factors[f"one.lora_{letter}.default.weight"].flatten(1) for letter in "AB")
    assert first.shape == (RANK, 8)
    merge_adapters(body.network)
    assert torch.allclose(body(X), moved, rtol=1e-3, atol=1e-4)
    assert torch.allclose(body.network.one.weight.flatten(1), weight.flatten(1) + second @ first, atol=1e-5)
    assert not any(MARK in name for name in body.network.state_dict())


def test_names_are_whole():
    """`0` is no ending of `1.0`: a layer that cannot be adapted has another's name as the end of its own."""
    inner = nn.Sequential(nn.Conv2d(6, 6, 3, groups=6))
    network = nn.Sequential(nn.Conv2d(3, 6, 3), inner, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)).eval()
    found = feature_network(network, X)
    add_adapters(found, X, seed=0)
    assert {name.partition(".lora")[0] for name in network.state_dict() if MARK in name} == {"0"}


def test_the_seed_decides_and_the_global_one_is_left_alone():
    def made(seed: int) -> dict[str, Tensor]:
        found = feature_network(tiny().eval(), X)
        state = torch.get_rng_state()
        add_adapters(found, X, seed=seed)
        assert torch.equal(state, torch.get_rng_state())
        return {name: value for name, value in found.state_dict().items() if MARK in name}

    one, two, other = made(0), made(0), made(1)
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert any(not torch.equal(value, other[name]) for name, value in one.items())


def test_no_layer_to_adapt():
    network = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)).eval()
    with pytest.raises(InputError, match=r"^Sequential has no linear layer or convolution without groups"):
        add_adapters(feature_network(network, X), X, seed=0)


def test_peft_is_optional(body, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"method lora needs peft.*pip install 'arelu-meta\[lora\]'"):
        add_adapters(body, X, seed=0)
