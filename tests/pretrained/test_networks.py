"""Networks by name, and what a wrong name says."""

import sys

import pytest
import torch
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.pretrained.networks import (
    build_network,
    declared_inputs,
    find_model,
    of_weights,
    published_crop,
    published_size,
)
from tests.own_parts import TinyNet
from tests.tiny_networks import Tiny, tiny

IMAGES = ImageSet("noise", torch.zeros(4, 3, 28, 28, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), ("a", "b"))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("resnet18", "torchvision"),
        ("timm/resnet18", "timm"),
        ("arelu_meta/resnet18", "arelu_meta"),
        ("mnist_conv", "arelu_meta"),
        ("levit_128s", "timm"),
        ("tests.tiny_networks:tiny", "own"),
        (Tiny, "own"),
        (Tiny(), "own"),
    ],
)
def test_family(name, place):
    assert find_model(name).family == place


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet81", r"unknown model 'resnet81'; did you mean 'resnet18'"),
        ("timm/levit_128x", r"did you mean 'timm/levit_128'"),
        ("levit_128x", r"did you mean 'timm/levit_128'"),
        ("qqqqqqqq", r"see torchvision.models.list_models\(\)"),
        ("nobody/resnet18", "give NAME, timm/NAME, arelu_meta/NAME or package.module:function"),
        ("tests.no_such:thing", "cannot import 'tests.no_such'"),
        ("tests.tiny_networks:tini", "did you mean 'tiny'"),
        ("tests.tiny_networks:no_network", "gives a int, not a torch.nn.Module"),
    ],
)
def test_wrong_names(name, message):
    with pytest.raises(InputError, match=message) as raised:
        build_network(find_model(name), {}, images=IMAGES, state={})
    assert "\n" not in str(raised.value)


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match="timm is not installed; pip install timm"):
        find_model("timm/resnet18")
    with pytest.raises(InputError, match=r"did you mean 'resnet18'.*\(timm is not installed\)"):
        find_model("resnet81")


def test_a_method_of_a_class_and_options():
    made = build_network(find_model("torch.nn:Linear"), {"in_features": 2, "out_features": 3}, images=IMAGES, state={})
    assert (made.in_features, made.out_features) == (2, 3)
    with pytest.raises(InputError, match="tiny cannot be built with depth=3"):
        build_network(find_model("tests.tiny_networks:tiny"), {"depth": 3}, images=IMAGES, state={})


def test_a_module_is_copied_and_a_class_or_function_called():
    given = Tiny()
    copied = build_network(find_model(given), {}, images=IMAGES, state={})
    assert copied is not given
    for own, others in zip(given.state_dict().values(), copied.state_dict().values(), strict=True):
        assert torch.equal(own, others)
        assert own.data_ptr() != others.data_ptr()
    for builder in (Tiny, tiny, "tests.tiny_networks:Tiny"):
        assert build_network(find_model(builder), {"width": 3}, images=IMAGES, state={}).first.out_channels == 3
    with pytest.raises(InputError, match=r"`model_options` {'width': 3} are for what builds a network"):
        build_network(find_model(given), {"width": 3}, images=IMAGES, state={})
    with pytest.raises(InputError, match=r"model is a int; give a name, a torch.nn.Module, a class or a function"):
        find_model(3)


def test_one_that_takes_what_ours_take_is_called_as_ours_are():
    """Three channels of 28x28 pixels, two classes, a choice of activation."""
    for given in ("tests.own_parts:TinyNet", TinyNet):
        network = build_network(find_model(given), {"activation": "tanh", "width": 5}, images=IMAGES, state={})
        assert isinstance(network.act, nn.Tanh)
        assert network.hidden.weight.shape == (5, 3 * 28 * 28)
        assert network.head.out_features == 2


def test_side_outputs_are_left_out():
    """googlenet and inception_v3 give tuples in training otherwise."""
    network = build_network(find_model("googlenet"), {}, images=IMAGES, state={})
    assert isinstance(network.train()(torch.zeros(2, 3, 64, 64)), torch.Tensor)


def test_ours_take_the_channels_of_the_weights():
    grey = build_network(
        find_model("mnist_conv"), {}, images=IMAGES, state={"block1.0.weight": torch.zeros(10, 1, 5, 5)}
    )
    colour = build_network(find_model("mnist_conv"), {"activation": "arelu"}, images=IMAGES, state={})
    convolutions = [next(m for m in net.modules() if isinstance(m, nn.Conv2d)).in_channels for net in (grey, colour)]
    assert convolutions == [1, 3]
    assert any(name.endswith("alpha") for name, _ in colour.named_parameters())
    assert not any(name.endswith("alpha") for name, _ in grey.named_parameters())


def test_a_tag_given_as_weights_names_the_network():
    """Its mean, deviation and size are those of the tag, not of the default: 0 and 1 here, not ImageNet's."""
    network = of_weights(find_model("timm/mobilenetv3_large_100"), "miil_in21k_ft_in1k")
    assert network.bare == "mobilenetv3_large_100.miil_in21k_ft_in1k"
    built = build_network(network, {}, images=IMAGES, state={})
    assert declared_inputs(built, network).mean == (0.0, 0.0, 0.0)
    assert of_weights(find_model("timm/mobilenetv3_large_100"), "my.safetensors").bare == "mobilenetv3_large_100"
    assert of_weights(find_model("resnet18"), "miil_in21k_ft_in1k").bare == "resnet18"


def test_the_size_is_that_of_the_weights():
    assert published_size(find_model("regnet_y_16gf"), "IMAGENET1K_SWAG_E2E_V1") == 384
    assert published_size(find_model("regnet_y_16gf")) == 224
    assert published_size(find_model("timm/eva02_small_patch14_336"), "mim_in22k_ft_in1k") == 336


@pytest.mark.parametrize(
    ("name", "share"), [("resnet18", 224 / 256), ("efficientnet_b0", 224 / 256), ("vit_b_16", 224 / 256)]
)
def test_the_crop_that_torchvision_evaluates_with(name: str, share: float):
    """Its reference: resize 256, crop 224 (`ResNet18_Weights.IMAGENET1K_V1` and the others' documentation)."""
    assert published_crop(nn.Identity(), find_model(name), "IMAGENET1K_V1") == pytest.approx(share)


def test_the_crop_that_timm_publishes_and_that_nobody_does():
    network = nn.Identity()
    assert published_crop(network, find_model("mnist_conv"), "none") == 1.0
    network.pretrained_cfg = {"crop_pct": 0.95}
    assert published_crop(network, find_model("mnist_conv"), "none") == 0.95
