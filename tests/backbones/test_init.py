"""Networks of one's own: registered, by place, or as they are."""

import pytest
import torch
from torch import nn

from arelu_meta import activations, backbones
from arelu_meta.errors import InputError
from tests.own_parts import TinyNet, without_activation

IMAGES = {"channels": 1, "image_size": (4, 4), "classes": 3}


def made(backbone, **options) -> nn.Module:
    return backbones.build(backbone, activation=activations.factory("relu"), **IMAGES, **options)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(backbones._REGISTRY, "_entries", dict(backbones._REGISTRY._entries))


@pytest.mark.usefixtures("registry")
def test_by_name_place_class_and_function():
    backbones.register("tiny_net", summary="one hidden layer")(TinyNet)
    assert "tiny_net" in backbones.names("classification")
    assert "tiny_net" not in backbones.names("segmentation")
    for given in ("tiny_net", "tests.own_parts:TinyNet", TinyNet, lambda **four: TinyNet(**four)):
        network = made(given)
        assert isinstance(network, TinyNet)
        assert network(torch.rand(2, 1, 4, 4)).shape == (2, 3)
        assert isinstance(network.act, nn.ReLU)
    assert made("tests.own_parts:TinyNet", width=5).head.in_features == 5


@pytest.mark.usefixtures("registry")
def test_what_cannot_be_registered():
    with pytest.raises(InputError, match="backbone 'conv4' is registered already"):
        backbones.register("conv4")(TinyNet)
    with pytest.raises(InputError, match="backbone 'mine' takes no argument 'activation'; it is called with"):
        backbones.register("mine")(without_activation)
    assert "mine" not in backbones.names()


@pytest.mark.parametrize(
    ("backbone", "options", "message"),
    [
        ("tests.own_parts:TinyNett", {}, "unknown attribute of tests.own_parts 'TinyNett'; did you mean 'TinyNet'"),
        ("tests.no_parts:TinyNet", {}, "cannot import 'tests.no_parts'"),
        ("tests.own_parts:TinyNet", {"widht": 3}, "unknown option of backbone 'tests.own_parts:TinyNet': 'widht'; did"),
        ("tests.own_parts:TinyNet", {"width": 0}, "takes a whole number above 0 for width, not 0"),
        ("tests.own_parts:without_activation", {}, "takes no argument 'activation'"),
        ("torch.nn:ReLU", {}, "takes no argument 'activation'"),
        (lambda **_four: 3, {}, "backbone '<lambda>' gives a int, not a torch.nn.Module"),
        (lambda **_four: nn.Linear("a", 3), {}, "backbone '<lambda>' cannot be built with no options"),
    ],
)
def test_what_cannot_be_built_is_one_line(backbone, options, message):
    with pytest.raises(InputError, match=message) as raised:
        made(backbone, **options)
    assert "\n" not in str(raised.value)
