"""Methods that move the network: what moves, what stays, and that they start where logistic regression ended."""

import copy

import pytest
import torch
from torch import nn

from arelu_meta.activations.parameters import activation_parameters
from arelu_meta.backbones.features import FeatureNetwork, feature_network
from arelu_meta.data.imageset import ImageSet
from arelu_meta.kinds.adapt.choosing import RATES, Support, choose_strength
from arelu_meta.kinds.adapt.tuning import START_C, TunedHead, Tuner, answer, moved_parameters
from arelu_meta.learners.frozen_heads import LinearHead
from tests.tiny_networks import saved_state, tiny

METHODS = list(RATES)
X = torch.zeros(2, 3, 12, 12)


def images(count: int = 36) -> ImageSet:
    """Three classes of noisy images, each bright in another third."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    pixels = torch.randint(120, (count, 3, 12, 12), generator=random)
    for number, label in enumerate(labels.tolist()):
        pixels[number, :, 4 * label : 4 * label + 4] += 60
    return ImageSet("thirds", pixels.to(torch.uint8), labels, ("a", "b", "c"))


@pytest.fixture
def body() -> FeatureNetwork:
    network = tiny()
    network.load_state_dict(saved_state())
    return feature_network(network.eval().requires_grad_(False), torch.zeros(2, 3, 12, 12))


def tuner(body: FeatureNetwork, epochs: int = 4) -> Tuner:
    return Tuner(body, "arelu", epochs, seed=0)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_method_names_moves_and_nothing_else(body, method):
    before = copy.deepcopy(body.state_dict())
    start = tuner(body).start(method, X)
    tuned = tuner(body).tune(images(), 3, method=method, lr=1e-2)
    named = {f"network.{name}" for name in moved_parameters(start.network, method)}
    if method == "lora":  # what it moved was added to the weights
        start, named = body, {"network.first.weight", "network.second.weight"}
    changed = {
        name for name, value in tuned.features.state_dict().items() if not torch.equal(value, start.state_dict()[name])
    }
    assert changed <= named
    assert len(changed) >= len(named) // 2  # a bias before a batch norm or a clamped slope may have no gradient
    assert all(torch.equal(value, before[name]) for name, value in body.state_dict().items())
    assert not any(parameter.requires_grad for parameter in tuned.parameters())
    assert not any("running" in name for name in changed)


def test_what_each_method_names(body):
    """Tiny has two convolutions with biases, a batch norm, and a head, whose bias no feature depends on."""
    assert set(moved_parameters(body.network, "norm")) == {
        *("first.bias", "second.bias", "norm.weight", "norm.bias", "head.bias")
    }
    assert len(moved_parameters(body.network, "full")) == len(list(body.network.parameters()))
    swapped = tuner(body).start("activation", X)
    assert moved_parameters(swapped.network, "activation").keys() == activation_parameters(swapped.network).keys()
    assert len(moved_parameters(swapped.network, "activation")) == 4  # alpha and beta at two call sites
    adapted = tuner(body).start("lora", X)
    assert len(moved_parameters(adapted.network, "lora")) == 4  # two factors at two convolutions


@pytest.mark.parametrize("activation", ["arelu_channel", "acon_c"])
def test_activations_with_numbers_for_each_channel(body, activation):
    """Tiny has six channels at its first call site and eight at its second; two or three numbers for each."""
    start = Tuner(body, activation, 1, seed=0).start("activation", X)
    each = {"arelu_channel": 2, "acon_c": 3}[activation]
    moved = moved_parameters(start.network, "activation").values()
    assert sum(value.numel() for value in moved) == each * (6 + 8)
    tuned = Tuner(body, activation, 1, seed=0).tune(images(), 3, method="activation", lr=1e-2)
    assert tuned.moved == each * (6 + 8)


def test_the_head_starts_as_logistic_regression(body):
    some = images()
    features = answer(body, some)
    start = LinearHead(features, some.labels, 3, START_C)
    torch.testing.assert_close(TunedHead(start)(features), start(features), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_tuning_lowers_the_loss(body, method):
    some = images()
    features = answer(tuner(body).start(method, X), some)
    start = LinearHead(features, some.labels, 3, START_C)
    before = nn.functional.cross_entropy(start(features), some.labels)
    tuned = tuner(body, epochs=10).tune(some, 3, method=method, lr=RATES[method][0])
    assert nn.functional.cross_entropy(answer(tuned, some), some.labels) < before


def test_the_same_seed_gives_the_same_network(body):
    one, two = (tuner(body).tune(images(), 3, method="full", lr=1e-3) for _ in range(2))
    other = Tuner(body, "arelu", 4, seed=1).tune(images(), 3, method="full", lr=1e-3)
    assert all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())
    assert any(not torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_a_choice_among_rates(body):
    some = images()
    support = Support(answer(body, some), some.labels, 3, some, tuner(body, epochs=2))
    choice = choose_strength("norm", support, 3, seed=0, stream="folds")
    assert choice.strength in RATES["norm"]
    fitted = choice.fit(support)
    assert fitted.head.sharpness.item() == pytest.approx(choice.sharpness)
    assert support.answers(fitted).shape == (36, 3)
    with pytest.raises(ValueError, match="norm moves the network, and needs images and a tuner"):
        Support(support.features, some.labels, 3).fit("norm", 1e-3)


def test_parameters_that_moved_are_counted(body):
    """Tiny: 3x6 kernels of 5x5 with 6 biases, a norm of 6, 6x8 of 2x2 with 8 biases; the head it came with stays.

    full: 450 + 6 + 12 + 192 + 8; norm: 6 + 12 + 8; activation: two at two call sites; lora of rank 4: 4 * 75 + 6 * 4 at
    the first convolution, 4 * 24 + 8 * 4 at the second.
    """
    moved = {method: tuner(body, epochs=1).tune(images(), 3, method=method, lr=1e-3).moved for method in METHODS}
    assert moved == {"norm": 26, "activation": 4, "lora": 452, "full": 668}


def test_a_network_that_takes_the_layout_of_its_maps_for_granted(body):
    """`view` of maps that are stored channels last fails; such a network is tuned as it is."""

    class Viewed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(400, 5)

        def forward(self, x):
            return self.head(self.conv(x).view(len(x), -1))

    plain = feature_network(Viewed().eval().requires_grad_(False), X)
    tuned = tuner(plain, epochs=1).tune(images(), 3, method="full", lr=1e-3)
    assert tuned.features.network.conv.weight.is_contiguous()
    assert answer(tuned, images()).shape == (36, 3)
    faster = tuner(body, epochs=1).tune(images(), 3, method="full", lr=1e-3)
    assert faster.features.network.first.weight.is_contiguous(memory_format=torch.channels_last)
