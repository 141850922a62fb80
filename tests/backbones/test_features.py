"""Features: what the classifier of a network is given, whichever way the network gives it."""

import pytest
import timm
import torch
from torch import nn

from arelu_meta import activations, backbones
from arelu_meta.backbones.features import feature_network
from arelu_meta.errors import InputError
from arelu_meta.store.graphs import trace
from tests.tiny_networks import convolutional_head, tiny, two_heads

X = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_timms_own_way():
    """Its logits are its classifier's answer to the features."""
    network = timm.create_model("test_vit", img_size=32, num_classes=4).eval()
    found = feature_network(network, X)
    assert found.way == "forward_head"
    with torch.no_grad():
        assert torch.allclose(network.head(found(X)), network(X), atol=1e-6)
    headless = timm.create_model("test_vit", img_size=32, num_classes=0).eval()
    headless.load_state_dict({key: value for key, value in network.state_dict().items() if "head" not in key})
    with torch.no_grad():
        assert torch.equal(feature_network(headless, X)(X), found(X))


def test_a_method_of_ours():
    network = backbones.build(
        "mnist_conv", activation=activations.factory("relu"), channels=3, image_size=(32, 32), classes=4
    ).eval()
    assert feature_network(network, X).way == "features"
    with torch.no_grad():
        assert torch.equal(feature_network(network, X)(X), network.features(X))


def test_the_input_of_the_classifier():
    network = tiny().eval()
    found = feature_network(network, X)
    assert (found.way, found.head) == ("input", "head")
    with torch.no_grad():
        assert torch.equal(network.head(found(X)), network(X))
    assert not network.head._forward_pre_hooks


def test_maps_before_a_convolutional_classifier_are_averaged():
    """The mean of a 1x1 convolution is the convolution of the mean."""
    network = convolutional_head().eval()
    found = feature_network(network, X)
    assert found.head == "2"
    with torch.no_grad():
        features = found(X)
        assert features.shape == (3, 4)
        logits = network[2](features[:, :, None, None]).flatten(1)
        assert torch.allclose(logits, network(X), atol=1e-6)


def test_a_layer_of_that_name_is_no_method():
    """torchvision's VGG has a module `features`, which ends in maps before its classifier's first layers."""

    class Like(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.classifier = nn.Conv2d(3, 4, 3), nn.Linear(4, 6)

        def forward(self, x):
            return self.classifier(self.features(x).amax((2, 3)))

    assert feature_network(Like().eval(), X).way == "input"


def test_a_network_without_a_usable_layer():
    with pytest.raises(InputError, match="which layer is the classifier"):
        feature_network(two_heads().eval(), X)
    assert feature_network(two_heads().eval(), X, head="left")(X).shape == (3, 4)

    class Tokens(nn.Module):
        def features(self, x):
            return x.flatten(2)

    with pytest.raises(InputError, match=r"Tokens gives features \(3, 3, 1024\) for 3 images, not \(N, d\)"):
        feature_network(Tokens(), X)

    class Broken(nn.Module):
        def features(self, _):
            raise ValueError("no\nfeatures")

    with pytest.raises(InputError, match="Broken gives no features: no"):
        feature_network(Broken(), X)


def test_it_can_be_traced_for_the_store():
    found = feature_network(tiny().eval(), X)
    with torch.no_grad():
        assert torch.equal(trace(found, X).module()(X[:2]), found(X[:2]))
