import math
from collections import OrderedDict

import pytest
import timm
import torch
from timm.optim import param_groups_layer_decay
from torch import nn
from torchvision.models import resnet18

from arelu_meta import activations
from arelu_meta.surgery import swap
from arelu_meta.training.learning_rates import layer_groups, lr_factor


class Small(nn.Module):
    """Three layers with parameters, the second with an activation of two (AReLU), and one without any."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.middle = nn.Sequential(nn.Linear(4, 5), activations.factory("arelu")())
        self.pool = nn.Flatten()
        self.head = nn.Linear(5, 2)


def test_rates_and_weight_decay_by_hand():
    """Layers first, middle, head at lr 0.8 and decay 0.5: 0.2, 0.4, 0.8; middle's activation 3 times 0.4."""
    network = Small()
    groups = layer_groups(
        network,
        lr=0.8,
        weight_decay=0.01,
        activation_lr_multiplier=3.0,
        activation_weight_decay=0.002,
        layer_decay=0.5,
    )
    members = [
        list(network.first.parameters()),
        list(network.middle[0].parameters()),
        list(network.middle[1].parameters()),
        list(network.head.parameters()),
    ]
    assert [[id(p) for p in group["params"]] for group in groups] == [[id(p) for p in group] for group in members]
    assert [group["lr"] for group in groups] == pytest.approx([0.2, 0.4, 1.2, 0.8])
    assert [group["base_lr"] for group in groups] == [group["lr"] for group in groups]
    assert [group["weight_decay"] for group in groups] == [0.01, 0.01, 0.002, 0.01]


def test_a_sequence_is_taken_apart_into_its_layers():
    """Two convolutions, each with its norm and activation, and a head: 0.25, 0.5, 1; one group of weights for each."""
    features = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), activations.build("arelu"), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
    )
    network = nn.Sequential(OrderedDict(features=features, flat=nn.Flatten(), head=nn.Linear(4, 2)))
    groups = layer_groups(network, lr=1.0, layer_decay=0.5)
    assert [(group["lr"], len(group["params"])) for group in groups] == [(0.25, 4), (0.25, 2), (0.5, 4), (1.0, 2)]


def test_blocks_of_a_stage_are_layers_and_activations_are_not():
    """resnet18 of torchvision: conv1, bn1, eight blocks and fc are eleven rates, from 0.5^10 to 1, swapped or not."""
    network = resnet18()
    rates = [0.5**depth for depth in range(10, -1, -1)]
    assert [group["lr"] for group in layer_groups(network, lr=1.0, layer_decay=0.5)] == rates
    swap(network, "arelu")
    assert sorted({group["lr"] for group in layer_groups(network, lr=1.0, layer_decay=0.5)}) == rates


def test_an_activation_behind_the_head_is_as_slow_as_the_first_layer():
    """As in networks that make their one activation last: it is called before the head, who knows where."""
    network = nn.Sequential(OrderedDict(body=nn.Linear(2, 2), head=nn.Linear(2, 2), act=activations.build("arelu")))
    groups = layer_groups(network, lr=1.0, layer_decay=0.5)
    assert [(group["lr"], len(group["params"])) for group in groups] == [(0.5, 2), (0.5, 2), (1.0, 2)]


def test_plain_settings_give_all_the_same_rate():
    groups = layer_groups(Small(), lr=0.1, weight_decay=0.5)
    assert {group["lr"] for group in groups} == {0.1}
    assert [group["weight_decay"] for group in groups] == [0.5, 0.5, 0.0, 0.5]


def test_parameters_of_the_network_itself_are_a_layer():
    network = Small()
    network.scale = nn.Parameter(torch.ones(1))  # named before the children
    groups = layer_groups(network, lr=1.0, layer_decay=0.5)
    assert [group["lr"] for group in groups] == [0.125, 0.25, 0.5, 0.5, 1.0]
    assert groups[0]["params"][0] is network.scale


@pytest.mark.parametrize("activation", ["arelu", "relu", "prelu", "maxout", "pau"])
@pytest.mark.parametrize("backbone", ["mnist_conv", "resnet18", "unet"])
def test_every_parameter_is_in_exactly_one_group(backbone: str, activation: str):
    from arelu_meta import backbones
    from arelu_meta.activations.parameters import activation_parameters

    options = {"filters": 2} if backbone == "unet" else {}
    network = backbones.build(
        backbone, activation=activations.factory(activation), channels=1, image_size=(32, 32), classes=2, **options
    )
    groups = layer_groups(network, lr=0.1, weight_decay=1.0, activation_weight_decay=2.0)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in network.parameters())
    own = {id(parameter) for group in groups if group["weight_decay"] == 2 for parameter in group["params"]}
    assert own == {id(parameter) for parameter in activation_parameters(network).values()}
    assert bool(own) == (activation not in ("relu", "maxout"))


def test_constant():
    assert [lr_factor(epoch, schedule="constant", epochs=4) for epoch in (0, 1.5, 4)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("epoch", "factor"), [(0, 1), (1.99, 1), (2, 0.1), (4.9, 0.1), (5, 0.01), (9, 0.01)])
def test_steps_at_the_milestones(epoch: float, factor: float):
    assert lr_factor(epoch, schedule="step", epochs=10, milestones=[2, 5]) == pytest.approx(factor, rel=1e-12)


def test_warmup_is_a_line_from_zero():
    """Two epochs of warmup: 0, 1/4, 1/2, 3/4, then the schedule's own 1."""
    factors = [lr_factor(epoch, schedule="constant", epochs=5, warmup_epochs=2) for epoch in (0, 0.5, 1, 1.5, 2)]
    assert factors == [0, 0.25, 0.5, 0.75, 1]


def test_cosine_is_torchs():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    for epoch in range(8):
        assert lr_factor(epoch, schedule="cosine", epochs=8) == pytest.approx(reference.get_last_lr()[0], abs=1e-6)
        optimizer.step()
        reference.step()


def test_cosine_after_warmup_falls_over_what_is_left():
    """Warmup 2 of 6: at 2 the top, at 4 half of the way down, at 6 zero, at 3 (1 + cos(45 degrees)) / 2."""
    factors = [lr_factor(epoch, schedule="cosine", epochs=6, warmup_epochs=2) for epoch in (2, 3, 4, 6)]
    assert factors == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, 0], abs=1e-12)
    assert lr_factor(1, schedule="cosine", epochs=6, warmup_epochs=2) == 0.5


def test_nothing_but_warmup():
    assert lr_factor(1, schedule="cosine", epochs=2, warmup_epochs=2) == 0.5


@pytest.mark.parametrize(
    ("name", "options"),
    [("vit_tiny_patch16_224", {"depth": 3}), ("resnet10t", {}), ("convnext_atto", {"depths": (1, 1, 2, 1)})],
)
def test_networks_of_timm_have_the_groups_of_timm(name, options):
    """Rate and weight decay of every parameter are those of `timm.optim.param_groups_layer_decay`."""
    network = timm.create_model(name, num_classes=3, **options)
    listed = network.no_weight_decay() if hasattr(network, "no_weight_decay") else ()
    theirs = param_groups_layer_decay(network, weight_decay=0.05, no_weight_decay_list=listed, layer_decay=0.75)
    expected = {id(p): (0.2 * group["lr_scale"], group["weight_decay"]) for group in theirs for p in group["params"]}
    ours = layer_groups(network, lr=0.2, weight_decay=0.05, layer_decay=0.75)
    found = {id(p): (group["lr"], group["weight_decay"]) for group in ours for p in group["params"]}
    assert found.keys() == expected.keys() == {id(p) for p in network.parameters()}
    for key, values in expected.items():
        assert found[key] == pytest.approx(values)
    assert len({rate for rate, _ in found.values()}) > 4


def test_without_decay_of_the_rates_timm_has_no_say():
    """Biases and norms decay as in any other network, and all rates are one."""
    groups = layer_groups(timm.create_model("resnet10t", num_classes=3), lr=0.2, weight_decay=0.05)
    assert {(group["lr"], group["weight_decay"]) for group in groups} == {(0.2, 0.05)}


def test_swapped_activations_of_timm_have_the_rate_of_their_block():
    """A block is a layer, at half the rate of the next; its activation has three times its rate."""
    network = timm.create_model("vit_tiny_patch16_224", num_classes=3, depth=3)
    swap(network, "arelu")
    ours = layer_groups(network, lr=1.0, layer_decay=0.5, activation_lr_multiplier=3.0, weight_decay=0.1)
    rates = {id(p): (group["lr"], group["weight_decay"]) for group in ours for p in group["params"]}
    weight, alpha = network.blocks[1].mlp.fc1.weight, network.blocks[1].mlp.act.alpha
    assert rates[id(alpha)] == (3 * rates[id(weight)][0], 0.0)
    assert rates[id(network.head.weight)][0] == 1.0
    assert rates[id(network.blocks[0].mlp.fc1.weight)][0] == rates[id(weight)][0] / 2
