"""Activations with numbers for each channel: counted by one pass through the network, wherever the channels are."""

import pytest
import torch
from torch import nn

from arelu_meta import activations, backbones
from arelu_meta.activations.channels import ChannelActivation, fit_channels, unfitted
from arelu_meta.activations.parameters import activation_modules, activation_values
from arelu_meta.errors import InputError
from arelu_meta.pictures.figures import activation_curves
from arelu_meta.seeding import global_stream
from arelu_meta.surgery import restore, swap

NAMES = [entry.name for entry in activations.entries() if entry.per_channel]


def test_those_that_are_registered_say_so():
    assert NAMES == ["arelu_channel", "acon_c", "meta_acon", "dynamic_relu"]
    for entry in activations.entries():
        assert isinstance(activations.build(entry.name), ChannelActivation) == entry.per_channel


@pytest.mark.parametrize("name", NAMES)
def test_one_set_of_numbers_takes_any_number_of_channels(name):
    module = activations.build(name)
    for channels in (1, 3, 8):
        assert module(torch.randn(2, channels, 4, 4)).shape == (2, channels, 4, 4)


@pytest.mark.parametrize("name", NAMES)
def test_a_backbone_has_numbers_for_the_channels_of_its_blocks(name):
    """The weights of conv4 are those it has with ReLU, and two seeds differ where numbers are drawn."""

    def made(activation: str, seed: int = 0) -> nn.Module:
        with global_stream(seed, "weights"):
            factory = activations.factory(activation)
            return backbones.build("conv4", activation=factory, channels=1, image_size=(16, 16), classes=3, filters=24)

    network, plain = made(name), made("relu")
    modules = list(activation_modules(network).values())
    assert [module.channels for module in modules] == [24] * 4
    assert network.training
    for key, value in plain.state_dict().items():
        assert torch.equal(network.state_dict()[key], value)
    if name == "meta_acon":
        assert modules[0].squeeze.shape == (1, 24)
        assert not torch.equal(modules[0].squeeze, modules[1].squeeze)
        assert not torch.equal(modules[0].squeeze, made(name, seed=1).get_submodule("blocks.0.2").squeeze)
        assert torch.equal(modules[0].squeeze, made(name).get_submodule("blocks.0.2").squeeze)


class Tokens(nn.Module):
    """A linear layer on tokens (N, 5, 6), as in a transformer, and one on (N, H, W, C), as in a ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 7), nn.Linear(6, 9)
        self.conv, self.norm = nn.Conv2d(6, 4, 1), nn.BatchNorm2d(4)
        self.acts = nn.ModuleList(activations.build("acon_c") for _ in range(3))

    def forward(self, x):  # (N, 6, 3, 5)
        tokens = self.acts[0](self.first(x.mean(2).transpose(1, 2)))  # (N, 5, 7)
        places = self.acts[1](self.second(x.permute(0, 2, 3, 1)))  # (N, 3, 5, 9)
        maps = self.acts[2](self.norm(self.conv(x)))  # (N, 4, 3, 5)
        return tokens.sum() + places.sum() + maps.sum()


def test_channels_are_where_the_layer_before_has_them():
    network = fit_channels(Tokens(), torch.randn(2, 6, 3, 5))
    assert [(act.channels, act.channels_last) for act in network.acts] == [(7, True), (9, True), (4, False)]
    assert network(torch.randn(2, 6, 3, 5)).isfinite()
    assert unfitted(network) == []
    with torch.no_grad():
        network.acts[0].p2.copy_(torch.arange(7.0))
        network.acts[0].p1.copy_(torch.arange(7.0))
    x = torch.randn(2, 5, 7)
    torch.testing.assert_close(network.acts[0](x), x * torch.arange(7.0))  # both slopes c: c x


def test_bases_of_others_are_counted_too():
    network = nn.Sequential(nn.Linear(3, 5), activations.build("gain_matched", base="acon_c"))
    assert fit_channels(network, torch.zeros(2, 3))[1].base.channels == 5
    elsa = nn.Sequential(nn.Linear(3, 5), activations.build("elsa", base="dynamic_relu"))
    assert fit_channels(elsa, torch.zeros(2, 3))[1].base.channels == 5


def test_wrong_input_is_one_line():
    network = nn.Sequential(nn.Linear(3, 5), activations.build("acon_c"))
    with pytest.raises(InputError, match=r"^Sequential does not take \(2, 4\): "):
        fit_channels(network, torch.zeros(2, 4))
    act = activations.build("acon_c")
    twice = nn.Sequential(nn.Linear(3, 5), act, nn.Linear(5, 6), act)
    with pytest.raises(InputError, match="one ACONC is called with 5 and 6 channels; give each call its own"):
        fit_channels(twice, torch.zeros(2, 3))
    with pytest.raises(InputError, match="channels must be at least 1, not 0"):
        activations.build("acon_c", channels=0)


@pytest.mark.parametrize("name", NAMES)
def test_swapped_in_by_an_example(name):
    network = nn.Sequential(
        nn.Conv2d(1, 20, 3), act := nn.ReLU(), nn.Flatten(), nn.Linear(180, 6), act, nn.Linear(6, 2)
    )
    x = torch.randn(4, 1, 5, 5)
    before = network(x)
    with pytest.raises(InputError, match="has numbers for each channel; give an input of the network as `example`"):
        swap(network, name)
    report = swap(network, name, preserve=True, example=x)
    assert [module.channels for module in activation_modules(network).values()] == [20, 6]
    counts = [sum(p.numel() for p in module.parameters()) for module in activation_modules(network).values()]
    assert [site.parameters for site in report.sites] == counts
    if name == "dynamic_relu":  # it starts as ReLU
        torch.testing.assert_close(network(x), before)
    if name == "arelu_channel":  # C(alpha) = 0.01, 1 + sigmoid(-8)
        assert (network(x) - before).abs().max() < 0.1
    restore(network, report)
    assert torch.equal(network(x), before)
    with pytest.raises(InputError, match="does not take"):
        swap(network, name, example=torch.zeros(2, 3, 5, 5))
    assert torch.equal(network(x), before)


def test_many_numbers_are_logged_as_three_and_drawn_by_none():
    network = nn.Sequential(activations.build("acon_c", channels=20), activations.build("arelu"))
    with torch.no_grad():
        network[0].p1.copy_(torch.arange(20.0))
    values = activation_values(network)
    assert [values[f"activation/0.p1.{key}"] for key in ("min", "mean", "max")] == [0.0, 9.5, 19.0]
    assert len(values) == 3 * 3 + 2
    figure = activation_curves(network, title="two")
    assert [line.get_label() for line in figure.axes[0].lines if not line.get_label().startswith("_")] == ["1"]
    assert activation_curves(nn.Sequential(activations.build("acon_c", channels=20)), title="none") is None
