"""The U-Net: its parameters summed by hand, and what a segmentation network must do."""

import pytest
import torch
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.activations.parameters import activation_modules
from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import NetworkSection
from arelu_meta.learners.moving import head_parameters
from arelu_meta.metrics import dice
from arelu_meta.seeding import global_stream

SITES = 9 * 2


def made(activation: str = "relu", *, channels: int = 3, side: int = 32, classes: int = 1, **options: int) -> nn.Module:
    with global_stream(0, "weights"):
        return backbones.build(
            "unet",
            activation=activations.factory(activation),
            channels=channels,
            image_size=(side, side),
            classes=classes,
            **options,
        )


def images(n: int, channels: int = 3, side: int = 32) -> Tensor:
    return torch.randn(n, channels, side, side, generator=torch.Generator().manual_seed(0))


def size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_parameters_by_hand():
    """A block of 3x3 convolutions a -> b -> b without bias, and two norms: 9 a b + 9 b b + 4 b.

    down        3 ->  32:    864 +     9,216 +   128 =    10,208
               32 ->  64: 18,432 +    36,864 +   256 =    55,552
               64 -> 128: 73,728 +   147,456 +   512 =   221,696
              128 -> 256: 294,912 +  589,824 + 1,024 =   885,760
              256 -> 512: 1,179,648 + 2,359,296 + 2,048 = 3,540,992
    up (2x2, bias)  512 -> 256: 524,544;  256 -> 128: 131,200;  128 -> 64: 32,832;  64 -> 32: 8,224
    join      512 -> 256: 1,179,648 + 589,824 + 1,024 = 1,770,496
              256 -> 128: 294,912 + 147,456 + 512 =   442,880
              128 ->  64: 73,728 + 36,864 + 256 =     110,848
               64 ->  32: 18,432 + 9,216 + 128 =       27,776
    head       32 ->   1: 33
    The layers are those of the authors' code (mateuszbuda/brain-segmentation-pytorch, unet.py).
    """
    down = 10_208 + 55_552 + 221_696 + 885_760 + 3_540_992
    up = 524_544 + 131_200 + 32_832 + 8_224
    join = 1_770_496 + 442_880 + 110_848 + 27_776
    assert down + up + join + 33 == 7_763_041
    with torch.device("meta"):
        network = made(side=256)
    assert size(network) == 7_763_041
    assert network(torch.empty(2, 3, 256, 256, device="meta")).shape == (2, 1, 256, 256)


def test_registered_as_a_segmentation_network():
    assert backbones.names("segmentation") == ["unet"]
    assert "unet" not in backbones.names("classification")
    with pytest.raises(ValueError, match="unknown backbone 'unet'"):
        NetworkSection.model_validate({"backbone": "unet", "activation": "relu"})


def test_two_parameters_more_per_activation_with_arelu():
    with torch.device("meta"):
        plain, network = made(), made("arelu")
    modules = activation_modules(network)
    assert len({id(module) for module in modules.values()}) == len(modules) == SITES
    assert size(network) - size(plain) == 2 * SITES
    assert f"{SITES} activations" in str(type(network).__doc__)
    calls: list[str] = []
    for site, module in modules.items():
        module.register_forward_hook(lambda *_, site=site: calls.append(site))
    network(torch.empty(2, 3, 32, 32, device="meta"))
    assert sorted(calls) == sorted(modules)


@pytest.mark.parametrize("activation", activations.names())
def test_meta_device_and_initial_weights(activation: str):
    with torch.device("meta"):
        network = made(activation, filters=8)
    assert network(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 1, 32, 32)
    reference, state = made(filters=8).state_dict(), made(activation, filters=8).state_dict()
    assert set(reference) <= set(state)
    if activation != "maxout":
        assert all(torch.equal(state[key], value) for key, value in reference.items())


@pytest.mark.parametrize("image_size", [(16, 16), (48, 32), (256, 256)])
@pytest.mark.parametrize(("channels", "classes"), [(1, 1), (4, 3)])
def test_any_channels_classes_and_sizes_divisible_by_16(image_size: tuple[int, int], channels: int, classes: int):
    with torch.device("meta"):
        network = backbones.build(
            "unet",
            activation=activations.factory("relu"),
            channels=channels,
            image_size=image_size,
            classes=classes,
        )
    x = torch.empty(2, channels, *image_size, device="meta")
    assert network(x).shape == (2, classes, *image_size)
    assert network.features(x).shape == (2, 32, *image_size)


@pytest.mark.parametrize("side", [0, 24, 250])
def test_other_sizes_are_refused(side: int):
    with pytest.raises(InputError, match=f"sides divisible by 16, not {side}x{side}"):
        made(side=side)


def test_logits_are_the_head_of_the_features():
    network, x = made(filters=8), images(2)
    assert head_parameters(network, x) == {"head.weight", "head.bias"}
    assert torch.equal(network.head(network.features(x)), network(x))


def test_every_level_reaches_the_output():
    """A pixel's logit sees its neighbourhood by the top level and the whole image by the bottom."""
    network, x = made(filters=4, side=64).eval(), images(1, side=64).requires_grad_()
    network(x)[0, 0, 32, 32].backward()
    assert x.grad is not None
    seen = x.grad[0].abs().sum(0) > 0
    assert seen[32, 32]
    assert seen[0].any()
    assert seen[:, 0].any()


@pytest.mark.parametrize("activation", ["arelu", "maxout"])
def test_gradient_reaches_every_parameter(activation: str):
    network = made(activation, filters=8)
    network(images(2)).square().mean().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 0, key


def test_state_dict_round_trip():
    network, x = made("arelu", filters=8), images(2)
    network(x)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.1)
    other = made("arelu", filters=8).eval()
    assert not torch.equal(network.eval()(x), other(x))
    other.load_state_dict(network.state_dict())
    assert torch.equal(network(x), other(x))


@pytest.mark.slow
def test_overfits_random_masks():
    """Masks independent of the noise they lie on can only be learned by heart."""
    draw = torch.Generator().manual_seed(1)
    x = images(4)
    y = torch.nn.functional.interpolate(torch.rand(4, 1, 4, 4, generator=draw), scale_factor=8) > 0.6
    network = made("arelu", filters=16)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(120):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(network(x), y.float()).backward()
        optimizer.step()
    with torch.no_grad():
        assert dice(network.eval()(x) > 0, y).min() > 0.99
