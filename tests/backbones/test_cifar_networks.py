"""The networks for 32x32 images: parameter counts beside torchvision's and timm's, and what each must do."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import timm
import torch
import torchvision.models as tv
from timm.layers import SEModule
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.activations.parameters import activation_modules, activation_parameters
from arelu_meta.backbones.shufflenet_v2 import channel_shuffle
from arelu_meta.errors import InputError
from arelu_meta.learners.functional_network import FunctionalNetwork
from arelu_meta.learners.moving import head_parameters
from arelu_meta.seeding import global_stream

SITES = {
    "vgg11": 8,
    "vgg13": 10,
    "resnet18": 1 + 8 * 2,
    "seresnet18": 1 + 8 * 3,
    "mobilenet": 1 + 13 * 2,
    "shufflenet_v2": 1 + 3 * 3 + 13 * 2 + 1,
    "squeezenet": 1 + 8 * 3,
}
FEATURES = {
    "vgg11": 512,
    "vgg13": 512,
    "resnet18": 512,
    "seresnet18": 512,
    "mobilenet": 1024,
    "shufflenet_v2": 1024,
    "squeezenet": 512,
}
SMALLEST = {
    "vgg11": 32,
    "vgg13": 32,
    "resnet18": 8,
    "seresnet18": 8,
    "mobilenet": 16,
    "shufflenet_v2": 8,
    "squeezenet": 8,
}
every_network = pytest.mark.parametrize("name", SITES)


def made(name: str, activation: str = "relu", *, channels: int = 3, side: int = 32, classes: int = 10) -> nn.Module:
    with global_stream(0, "weights"):
        return backbones.build(
            name,
            activation=activations.factory(activation),
            channels=channels,
            image_size=(side, side),
            classes=classes,
        )


def on_meta(name: str, activation: str = "relu", **arguments: int) -> nn.Module:
    with torch.device("meta"):
        return made(name, activation, **arguments)


def images(n: int, channels: int = 3, side: int = 32) -> Tensor:
    return torch.randn(n, channels, side, side, generator=torch.Generator().manual_seed(0))


def size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def torchvision_vgg(build: Callable[..., tv.VGG]) -> int:
    """The convolutions of torchvision's VGG, and a linear head on their 512 channels."""
    return size(build().features) + 512 * 10 + 10


def torchvision_resnet18() -> int:
    network = tv.resnet18(num_classes=10)
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    return size(network)


def timm_seresnet18() -> int:
    """timm rounds the hidden units up to a multiple of eight; the publication does not."""
    exact = {"attn_layer": partial(SEModule, rd_ratio=1 / 16, rd_divisor=1)}
    network = timm.create_model("resnet18", num_classes=10, block_args=exact)
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    return size(network)


def torchvision_squeezenet() -> int:
    """torchvision's with a 3x3 stem, and a weight and a bias of batch norm for each channel of each convolution."""
    network = tv.squeezenet1_0(num_classes=10)
    network.features[0] = nn.Conv2d(3, 96, 3)
    convolutions = [module for module in network.features.modules() if isinstance(module, nn.Conv2d)]
    return size(network) + 2 * sum(convolution.out_channels for convolution in convolutions)


REFERENCES: dict[str, Callable[[], int]] = {
    "vgg11": lambda: torchvision_vgg(tv.vgg11_bn),
    "vgg13": lambda: torchvision_vgg(tv.vgg13_bn),
    "resnet18": torchvision_resnet18,
    "seresnet18": timm_seresnet18,
    # The stems differ in stride alone.
    "mobilenet": lambda: size(timm.create_model("mobilenetv1_100", num_classes=10)),
    "shufflenet_v2": lambda: size(tv.shufflenet_v2_x1_0(num_classes=10)),
    "squeezenet": torchvision_squeezenet,
}


def test_all_are_registered_for_classification():
    assert set(SITES) < set(backbones.names("classification"))
    assert backbones.names() == backbones.names("classification") + backbones.names("segmentation")


@every_network
def test_parameters_as_in_an_independent_construction(name: str):
    with torch.device("meta"):
        expected = REFERENCES[name]()
    assert size(on_meta(name)) == expected
    assert f"{expected:,} parameters" in " ".join(str(type(on_meta(name)).__doc__).split())


@every_network
def test_two_parameters_more_per_activation_with_arelu(name: str):
    network = on_meta(name, "arelu")
    assert len(activation_modules(network)) == SITES[name]
    assert len({id(module) for module in activation_modules(network).values()}) == SITES[name]
    assert size(network) - size(on_meta(name)) == 2 * SITES[name]
    assert sum(parameter.numel() for parameter in activation_parameters(network).values()) == 2 * SITES[name]
    assert f"{SITES[name]} activations" in str(type(network).__doc__)


@every_network
def test_every_activation_is_called_once_per_pass(name: str):
    """A module that is built but not called, or called twice, is no call site of its own."""
    network = on_meta(name, "arelu")
    calls: list[str] = []
    for site, module in activation_modules(network).items():
        module.register_forward_hook(lambda *_, site=site: calls.append(site))
    network(torch.empty(2, 3, 32, 32, device="meta"))
    assert sorted(calls) == sorted(activation_modules(network))


@every_network
def test_no_nonlinearity_but_the_activations(name: str):
    """With the identity as activation and no pooling or gate, the network in evaluation mode is affine."""
    network = made(name, "identity").eval().double()
    for module in list(network.modules()):
        for child_name, child in module.named_children():
            if isinstance(child, nn.MaxPool2d):
                setattr(module, child_name, nn.AvgPool2d(2))
            if child_name == "gate":
                setattr(module, child_name, nn.Identity())
    x, y = images(2).double().unsqueeze(1)
    with torch.no_grad():
        middle = network((x + y) / 2)
        assert torch.allclose(middle, (network(x) + network(y)) / 2, rtol=1e-9, atol=1e-12)


@every_network
@pytest.mark.parametrize(("side", "channels", "classes"), [(32, 1, 100), (40, 4, 1)])
def test_any_channels_sizes_and_classes(name: str, side: int, channels: int, classes: int):
    network = on_meta(name, channels=channels, side=side, classes=classes)
    x = torch.empty(2, channels, side, side, device="meta")
    assert network(x).shape == (2, classes)
    assert network.features(x).shape == (2, FEATURES[name])


@every_network
def test_smallest_image(name: str):
    side = SMALLEST[name]
    network = made(name, side=side).eval()
    assert network(images(1, side=side)).shape == (1, 10)
    with pytest.raises(InputError, match=rf"{name} halves .* {side - 1}x{side - 1} is below {side}x{side}"):
        made(name, side=side - 1)


@every_network
def test_the_head_is_found(name: str):
    assert head_parameters(made(name), images(2)) == {"head.weight", "head.bias"}


@every_network
def test_maxout_doubles_what_stands_before_each_activation(name: str):
    network = on_meta(name, "maxout")
    widths: list[tuple[int, int]] = []
    for module in activation_modules(network).values():
        module.register_forward_hook(lambda _, x, y: widths.append((x[0].shape[1], y.shape[1])))
    network(torch.empty(2, 3, 32, 32, device="meta"))
    assert len(widths) == SITES[name]
    assert all(before == 2 * after for before, after in widths)


def test_maxout_of_a_residual_block_adds_the_shortcut_to_each_piece():
    """With equal pieces the larger of the two is either: residual + shortcut, as with the identity."""
    double, single = made("resnet18", "maxout").stages[0][0].eval(), made("resnet18", "identity").stages[0][0].eval()
    state = single.state_dict()
    for key, value in double.state_dict().items():
        same = value.shape == state[key].shape
        state[key] = state[key] if same else state[key].repeat_interleave(2, 0)
    double.load_state_dict(state)
    x = images(2, 64, 8)
    assert torch.allclose(double(x), single(x), atol=1e-6)


def test_channel_shuffle_deals_groups_in_turn():
    """Three groups of two channels, 0 1 | 2 3 | 4 5: first of each, then second of each."""
    x = torch.arange(6.0).view(1, 6, 1, 1).expand(2, 6, 3, 3)
    assert channel_shuffle(x, 3)[1, :, 2, 2].tolist() == [0, 2, 4, 1, 3, 5]


def test_squeezenet_head_is_the_last_convolution_and_the_mean():
    network = made("squeezenet").eval()
    maps: list[Tensor] = []
    network.stages.register_forward_hook(lambda *arguments: maps.append(arguments[-1]))
    logits = network(images(2))
    convolved = nn.functional.conv2d(maps[0], network.head.weight[:, :, None, None], network.head.bias)
    assert torch.allclose(logits, convolved.mean((2, 3)), atol=1e-6)


@every_network
def test_few_shot_learners_use_the_statistics_of_the_batch(name: str):
    """As in training mode, whatever the mode, and without a trace in the running statistics."""
    network, x = made(name), images(4)
    function = FunctionalNetwork(network.eval())
    before = copy.deepcopy(network.state_dict())
    found = function(function.parameters, x)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert not network.training
    assert torch.allclose(found, network.train()(x), atol=1e-4)


@pytest.mark.slow
@every_network
def test_overfits_64_random_images(name: str):
    """Random labels on noise can only be learned by heart; judged in evaluation mode, by the running statistics."""
    x = images(64)
    y = torch.randint(10, (64,), generator=torch.Generator().manual_seed(1))
    network = made(name, "arelu")
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    order = torch.Generator().manual_seed(2)
    right = 0.0
    for _ in range(15):
        for rows in torch.randperm(64, generator=order).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            right = (network.eval()(x).argmax(1) == y).float().mean().item()
        network.train()
        if right == 1:
            break
    assert right == 1
