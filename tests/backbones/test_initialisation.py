import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from arelu_meta import activations, backbones
from arelu_meta.backbones.initialisation import fan_in, initialise
from arelu_meta.errors import InputError

INITS = ("he", "gain", "unit_variance")


def network(activation: str = "relu", backbone: str = "mnist_conv") -> nn.Module:
    factory = activations.factory(activation)
    return backbones.build(backbone, activation=factory, channels=1, image_size=(28, 28), classes=5)


def layers(module: nn.Module) -> list[nn.Conv2d | nn.ConvTranspose2d | nn.Linear]:
    return [one for one in module.modules() if isinstance(one, nn.Conv2d | nn.ConvTranspose2d | nn.Linear)]


def test_he_is_that_of_torch():
    ours, expected = network(), network()
    torch.manual_seed(3)
    initialise(ours, "he", activation=nn.ReLU())
    torch.manual_seed(3)
    for layer in layers(expected):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    for one, other in zip(ours.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_gain_of_relu_is_hes():
    nets = []
    for init in ("he", "gain"):
        net = network()
        torch.manual_seed(0)
        nets.append(initialise(net, init, activation=nn.ReLU()))
    for one, other in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["relu", "arelu", "tanh", "maxout"])
def test_matched_weights_keep_the_second_moment(name: str):
    """Of what goes into an activation, ten layers deep; torch's default loses the signal."""
    torch.manual_seed(0)
    factory = activations.factory(name)
    pieces = 2 if name == "maxout" else 1
    parts = [part for _ in range(10) for part in (factory(), nn.Conv2d(256, 256 * pieces, 1))]
    deep = nn.Sequential(*parts)
    x = torch.randn(200, 256 * pieces, 1, 1)
    assert deep(x).square().mean().item() < 0.2
    initialise(deep, "gain", activation=factory())
    assert deep(x).square().mean().item() == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize(("activation", "backbone"), [("relu", "conv4"), ("arelu", "unet"), ("maxout", "mnist_conv")])
def test_every_layer_has_unit_variance(activation: str, backbone: str):
    size = 32 if backbone == "unet" else 28
    factory = activations.factory(activation)
    net = backbones.build(backbone, activation=factory, channels=1, image_size=(size, size), classes=5)
    buffers = {name: value.clone() for name, value in net.named_buffers()}
    images = torch.rand(24, 1, size, size)
    initialise(net, "unit_variance", activation=factory(), images=images)
    assert all(torch.equal(value, buffers[name]) for name, value in net.named_buffers())
    seen: list[float] = []
    for layer in layers(net):
        layer.register_forward_hook(
            lambda _layer, _inputs, output: seen.append(output.detach().std(correction=0).item())
        )
    net(images)
    assert len(seen) == len(layers(net))
    assert seen == pytest.approx([1.0] * len(seen), rel=2e-3)


def test_a_weight_that_is_used_twice_is_scaled_by_its_first_use():
    shared = nn.Linear(6, 6)
    net = nn.Sequential(shared, nn.ReLU(), shared)
    x = torch.randn(50, 6)
    initialise(net, "unit_variance", activation=nn.ReLU(), images=x)
    assert shared(x).std(correction=0).item() == pytest.approx(1, rel=1e-5)


def test_fan_in_of_grouped_and_transposed_convolutions():
    """Deviation 1 / sqrt(fan-in) keeps the variance of Gaussian input, away from the borders."""
    torch.manual_seed(0)
    for layer in (
        nn.Conv2d(32, 64, 3, groups=4, bias=False),
        nn.ConvTranspose2d(64, 32, 2, stride=2, bias=False),
        nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1, bias=False),
    ):
        nn.init.normal_(layer.weight, std=fan_in(layer) ** -0.5)
        out = layer(torch.randn(8, layer.in_channels, 20, 20))[..., 3:-3, 3:-3]
        assert out.std().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("init", INITS)
def test_what_is_no_layer_stays(init: str):
    net = network("arelu", "conv4")
    kept = {n: p.clone() for n, p in net.named_parameters() if p.ndim < 2 and not n.endswith("bias")}
    initialise(net, init, activation=activations.build("arelu"), images=torch.rand(16, 1, 28, 28))
    assert kept
    assert all(torch.equal(net.get_parameter(name), value) for name, value in kept.items())


def test_the_default_changes_nothing():
    net = network()
    before = [parameter.clone() for parameter in net.parameters()]
    assert initialise(net, "default", activation=nn.ReLU()) is net
    assert all(torch.equal(one, other) for one, other in zip(before, net.parameters(), strict=True))


def test_refusals():
    with pytest.raises(InputError, match="cannot set the weight of 0, which is computed"):
        initialise(nn.Sequential(weight_norm(nn.Linear(3, 3))), "he", activation=nn.ReLU())
    with pytest.raises(InputError, match="needs `images`"):
        initialise(network(), "unit_variance", activation=nn.ReLU())
    with pytest.raises(InputError, match=r"block1\.0 for 8 images do not vary"):
        initialise(network(), "unit_variance", activation=nn.ReLU(), images=torch.zeros(8, 1, 28, 28))
    with pytest.raises(InputError, match=r"Threshold gives a mean square of 0\.0"):
        initialise(network(), "gain", activation=nn.Threshold(100, 0))
