import pytest
import torch
from torch import nn

from arelu_meta import activations
from arelu_meta.activations.parameters import (
    activation_modules,
    activation_parameters,
    draws_random_numbers,
    parameter_groups,
)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 4),
        activations.build("arelu"),
        nn.Sequential(nn.Linear(4, 4), activations.build("elsa", base="prelu")),
        activations.build("relu"),
        nn.PReLU(),
        nn.ReLU(),
    )


def test_modules_are_the_outermost_built_ones_and_anyones_prelu():
    """`nn.ReLU()` that nobody marked is a layer like others; ELSA's base belongs to ELSA."""
    assert list(activation_modules(network())) == ["1", "2.1", "3", "4"]


def test_names_that_begin_alike_are_different_modules():
    net = nn.ModuleDict({"act": activations.build("arelu"), "act2": activations.build("arelu")})
    assert list(activation_modules(net)) == ["act", "act2"]


def test_parameters_by_their_name_in_the_network():
    net = network()
    found = activation_parameters(net)
    assert set(found) == {"1.alpha", "1.beta", "2.1.alpha", "2.1.beta", "2.1.base.weight", "4.weight"}
    named = dict(net.named_parameters())
    assert all(parameter is named[name] for name, parameter in found.items())


def test_an_activation_alone():
    assert list(activation_parameters(activations.build("arelu"))) == ["alpha", "beta"]


def test_groups_hold_every_parameter_once():
    net = network()
    groups = parameter_groups(net, lr=0.1, weight_decay=0.01, activation_lr_multiplier=3.0)
    assert [group["lr"] for group in groups] == [0.1, pytest.approx(0.3)]
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0]
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in net.parameters())
    assert {id(parameter) for parameter in groups[1]["params"]} == {id(p) for p in activation_parameters(net).values()}


def test_no_empty_group():
    assert len(parameter_groups(nn.Linear(2, 2), lr=0.1)) == 1


def test_decay_leaves_activation_parameters_alone_unless_asked():
    """One SGD step of lr 0.5 and decay 0.2 without gradient: w -> w (1 - 0.1)."""
    for asked, factor in ((0.0, 1.0), (0.2, 0.9)):
        net = nn.Sequential(nn.Linear(2, 2), activations.build("arelu"))
        weight, alpha = net[0].weight.detach().clone(), net[1].alpha.item()
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        groups = parameter_groups(net, lr=0.5, weight_decay=0.2, activation_weight_decay=asked)
        torch.optim.SGD(groups).step()
        assert torch.allclose(net[0].weight, 0.9 * weight)
        assert net[1].alpha.item() == pytest.approx(factor * alpha)


def test_random_activations_say_so():
    class Noisy(nn.ReLU):
        draws_random_numbers = True

    assert all(map(draws_random_numbers, (activations.build("rrelu"), nn.RReLU(), Noisy())))
    assert not any(draws_random_numbers(activations.build(name)) for name in activations.names() if name != "rrelu")
