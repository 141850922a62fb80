"""What every registered backbone must do, with every registered activation."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from arelu_meta import activations, backbones
from arelu_meta.activations.parameters import activation_modules, activation_parameters
from arelu_meta.errors import InputError
from arelu_meta.seeding import global_stream

SIDE = 32
SMALL = ("mnist_conv", "conv4", "mlp")  # made for episodes too: no running statistics, and every activation is tried
LARGE = [name for name in backbones.names("classification") if name not in SMALL]
every_backbone = pytest.mark.parametrize("name", [*SMALL, *LARGE])
every_small_backbone = pytest.mark.parametrize("name", SMALL)
every_pair = pytest.mark.parametrize(
    ("name", "activation"),
    [
        *((name, activation) for name in SMALL for activation in activations.names()),
        *((name, activation) for name in LARGE for activation in ("arelu", "maxout")),
    ],
)


def made(name: str, activation: str = "relu", *, channels: int = 1, side: int = SIDE, classes: int = 5) -> nn.Module:
    with global_stream(0, "weights"):
        return backbones.build(
            name,
            activation=activations.factory(activation),
            channels=channels,
            image_size=(side, side),
            classes=classes,
        )


def images(n: int, channels: int = 1, side: int = SIDE) -> Tensor:
    return torch.randn(n, channels, side, side, generator=torch.Generator().manual_seed(0))


@every_pair
def test_forward_and_backward(name: str, activation: str):
    network = made(name, activation)
    logits = network(images(4))
    assert logits.shape == (4, 5)
    assert logits.isfinite().all()
    nn.functional.cross_entropy(logits, torch.tensor([0, 3, 3, 4])).backward()
    gradients = {key: parameter.grad for key, parameter in network.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    zero = [key for key, gradient in gradients.items() if not gradient.any()]
    assert len(zero) < len(gradients) if name in SMALL else zero == []


@every_pair
def test_meta_device(name: str, activation: str):
    with torch.device("meta"):
        network = made(name, activation)
    assert all(tensor.is_meta for tensor in (*network.parameters(), *network.buffers()))
    out = network(torch.empty(2, 1, SIDE, SIDE, device="meta"))
    assert out.is_meta
    assert out.shape == (2, 5)


@every_small_backbone
@pytest.mark.parametrize("side", [28, 32])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("classes", [2, 20])
def test_any_channels_sizes_and_ways(name: str, side: int, channels: int, classes: int):
    network = made(name, channels=channels, side=side, classes=classes)
    assert network(images(3, channels, side)).shape == (3, classes)


@cache
def _reference(name: str) -> dict[str, Tensor]:
    return made(name).state_dict()


@every_pair
def test_same_initial_weights_for_every_activation(name: str, activation: str):
    """What an activation draws or does not draw shifts no layer's weights; Maxout's layers are wider, so others."""
    reference, network = _reference(name), made(name, activation).state_dict()
    assert set(reference) <= set(network)
    same = [torch.equal(network[key], value) for key, value in reference.items() if network[key].shape == value.shape]
    if activation == "maxout":
        assert len(same) < len(reference)
    else:
        assert len(same) == len(reference)
        assert all(same)


@every_backbone
def test_other_seed_other_weights(name: str):
    with global_stream(1, "weights"):
        other = backbones.build(
            name, activation=activations.factory("relu"), channels=1, image_size=(SIDE, SIDE), classes=5
        )
    assert not torch.equal(other.head.weight, _reference(name)["head.weight"])


@every_backbone
def test_each_layer_has_an_activation_of_its_own(name: str):
    network = made(name, "arelu")
    modules = activation_modules(network)
    assert len(modules) >= (2 if name == "mlp" else 3)
    assert len({id(module) for module in modules.values()}) == len(modules)
    added = sum(p.numel() for p in network.parameters()) - sum(p.numel() for p in made(name).parameters())
    assert added == sum(p.numel() for p in activation_parameters(network).values()) == 2 * len(modules)


@every_backbone
def test_logits_are_the_head_of_the_features(name: str):
    network, x = made(name).eval(), images(3)
    assert torch.equal(network.head(network.features(x)), network(x))


@every_backbone
def test_state_dict_round_trip(name: str):
    network, other, x = made(name, "arelu"), made(name, "arelu").eval(), images(3)
    network(images(4))  # moves the running statistics, where there are any
    network.eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.1)
    assert not torch.equal(network(x), other(x))
    other.load_state_dict(network.state_dict())
    assert torch.equal(network(x), other(x))


@every_small_backbone
def test_no_state_is_left_behind_by_a_forward_pass(name: str):
    """Running statistics would leak between episodes."""
    network = made(name)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    network.train()(images(4))
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@every_small_backbone
def test_vmap_over_tasks_equals_a_loop(name: str):
    network, x = made(name, "arelu").double(), images(6).double().unflatten(0, (2, 3))
    stacked = {key: torch.stack([value, 1.05 * value]) for key, value in network.named_parameters()}
    together = torch.vmap(lambda state, x: functional_call(network, state, (x,)))(stacked, x)
    for task in range(2):
        alone = functional_call(network, {key: value[task] for key, value in stacked.items()}, (x[task],))
        assert torch.allclose(together[task], alone, rtol=1e-9, atol=1e-11)


@every_backbone
def test_unknown_option_is_refused(name: str):
    arguments = {"activation": activations.factory("relu"), "channels": 1, "image_size": (SIDE, SIDE), "classes": 5}
    with pytest.raises(InputError, match=f"unknown option of backbone '{name}': 'depht'"):
        backbones.build(name, **arguments, depht=3)
    with pytest.raises(InputError, match=f"unknown option of backbone '{name}': 'channels'"):
        backbones.check_options(name, {"channels": 3})


@pytest.mark.parametrize("filters", [0, -3, 2.5, "abc", True])
def test_filters_are_counted(filters: object):
    """Some of these would fail with the first image alone, or not at all."""
    with pytest.raises(InputError, match=f"'conv4' takes a whole number above 0 for filters, not {filters!r}"):
        backbones.build(
            "conv4",
            activation=activations.factory("relu"),
            channels=1,
            image_size=(28, 28),
            classes=5,
            filters=filters,
        )


def test_unknown_name_suggests_the_near_one():
    with pytest.raises(InputError, match="unknown backbone 'mnist_cnv'; did you mean 'mnist_conv'"):
        made("mnist_cnv")
