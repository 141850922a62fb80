"""Layer statistics worked out on paper."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.activations.parameters import activation_modules
from arelu_meta.data.imageset import ImageSet
from arelu_meta.pictures.layer_statistics import LayerLog, dead_alpha_share, layer_statistics
from tests.pictures.small_networks import fill, images, net
from tests.tiny_images import digits, discs


class TestLayerStatistics:
    def small(self, activation: str = "arelu") -> nn.Module:
        """y = W2 f(W1 x) with W1 = [[1], [-2]] and W2 = [[3, 1]]."""
        network = nn.Sequential(nn.Linear(1, 2, bias=False), activations.build(activation), nn.Linear(2, 1, bias=False))
        fill(network[0].weight, [[1.0], [-2.0]])
        fill(network[2].weight, [[3.0, 1.0]])
        return network

    def test_by_hand(self):
        """x = 1, 2 and relu: W1 x = (1, -2), (2, -4); f = (1, 0), (2, 0); y = 3, 6; the loss is the sum of y.

        RMS: sqrt((1 + 4 + 4 + 16) / 4) = 2.5;  sqrt((1 + 4) / 4);  sqrt((9 + 36) / 2).
        dL/dy = 1, 1: norm sqrt(2).  dL/df = (3, 1) twice: sqrt(20).  dL/d(W1 x) = (3, 0) twice: sqrt(18).
        dL/dW2 = sum of f = (3, 0): norm 3.  dL/dW1 = (3 * (1 + 2), 0): norm 9.  relu learns nothing.
        """
        found = layer_statistics(self.small("relu"), torch.tensor([[1.0], [2.0]]), torch.tensor(0), loss=total)
        assert list(found) == ["0", "1", "2"]
        assert [layer.rms for layer in found.values()] == pytest.approx([2.5, (5 / 4) ** 0.5, (45 / 2) ** 0.5])
        gradients = [layer.output_gradient for layer in found.values()]
        assert gradients == pytest.approx([18**0.5, 20**0.5, 2**0.5])
        assert [layer.parameter_gradient for layer in found.values()] == pytest.approx([9, 0, 3])
        assert [layer.dead_alpha for layer in found.values()] == [None, None, None]

    def test_arelu_by_hand(self):
        """x = 1: W1 x = (1, -2). dL/dalpha = 1 * -2; dL/dbeta = 3 * s (1 - s) * 1 with s = sigmoid(2)."""
        found = layer_statistics(self.small(), torch.tensor([[1.0]]), torch.tensor(0), loss=total)
        s = torch.sigmoid(torch.tensor(2.0)).item()
        assert found["1"].rms == pytest.approx((((1 + s) ** 2 + 1.8**2) / 2) ** 0.5)
        assert found["1"].parameter_gradient == pytest.approx((4 + (3 * s * (1 - s)) ** 2) ** 0.5)
        assert found["1"].dead_alpha == 0

    def test_dead_alpha(self):
        """The hard clamp passes the gradient inside [0.01, 0.99] and none beyond; straight-through passes all."""
        network = self.small()
        fill(network[1].alpha, 0.0)
        found = layer_statistics(network, torch.tensor([[1.0]]), torch.tensor(0), loss=total)
        assert found["1"].dead_alpha == 1
        modules = [activations.build("arelu", alpha=alpha) for alpha in (-0.5, 0.02, 0.5, 0.98, 1.2)]
        assert dead_alpha_share(nn.Sequential(*modules)) == pytest.approx(2 / 5)
        straight = activations.build("arelu", alpha=-0.5, clamp="straight_through")
        assert dead_alpha_share(nn.Sequential(*modules, straight)) == pytest.approx(2 / 6)
        assert dead_alpha_share(nn.Linear(2, 2)) is None

    def test_gradients_as_by_backward(self):
        network, x, y = net("arelu"), images(4), torch.tensor([0, 1, 2, 3])
        found = layer_statistics(network, x, y)
        F.cross_entropy(network(x), y).backward()
        for name, layer in found.items():
            parts = [p.grad.norm() for p in network.get_submodule(name).parameters() if p.grad is not None]
            assert parts
            assert layer.parameter_gradient == pytest.approx(torch.stack(parts).norm().item(), rel=1e-5)
        assert set(activation_modules(network)) < set(found)

    def test_leaves_the_network_as_it_was(self):
        network, x, y = net("rrelu", norm="running"), images(4), torch.tensor([0, 1, 2, 3])
        before = {key: value.clone() for key, value in network.state_dict().items()}
        randomness = torch.random.get_rng_state()
        with torch.no_grad():
            layer_statistics(network, x, y)
        assert torch.equal(torch.random.get_rng_state(), randomness)
        assert network.training
        assert all(parameter.grad is None for parameter in network.parameters())
        assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
        assert all(not module._forward_hooks for module in network.modules())

    def test_frozen_layers_and_uncalled_ones(self):
        network = self.small()
        network[0].requires_grad_(False)
        network[2].unused = nn.Linear(1, 1)
        found = layer_statistics(network, torch.tensor([[1.0]]), torch.tensor(0), loss=total)
        assert list(found) == ["0", "1", "2"]
        assert found["0"].parameter_gradient == 0
        assert found["0"].output_gradient > 0

    def test_a_layer_called_twice_counts_both_outputs(self):
        """f(f(x)) with f(x) = 2 x at x = 3: outputs 6 and 12, sqrt((36 + 144) / 2); gradients 2 and 1."""
        layer = nn.Linear(1, 1, bias=False)
        fill(layer.weight, [[2.0]])
        found = layer_statistics(nn.Sequential(layer, layer), torch.tensor([[3.0]]), torch.tensor(0), loss=total)
        assert found["0"].rms == pytest.approx(90**0.5)
        assert found["0"].output_gradient == pytest.approx(5**0.5)


def total(logits: Tensor, _: Tensor) -> Tensor:
    return logits.sum()


def network(activation: str = "arelu") -> nn.Module:
    torch.manual_seed(0)
    factory = activations.factory(activation)
    return backbones.build("mnist_conv", activation=factory, channels=1, image_size=(28, 28), classes=10)


@pytest.mark.parametrize(("count", "probes"), [(1, 1), (60, 2), (200, 4), (5000, 32)])
def test_a_fiftieth_of_the_images_probes(count: int, probes: int):
    """Evenly spread: numbers 0, 50, 100, 150 of 200."""
    pixels = (torch.arange(count) % 251).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 28, 28)
    images = ImageSet("ramp", pixels, torch.arange(count) % 10, tuple("abcdefghij"))
    log = LayerLog(network(), images, F.cross_entropy)
    assert len(log.x) == len(log.y) == probes
    if count == 200:
        assert (log.x[:, 0, 0, 0] * 255).round().tolist() == [0, 50, 100, 150]


def test_values_are_those_of_layer_statistics_in_training_mode():
    net, images = network(), digits()
    log = LayerLog(net, images, F.cross_entropy)
    net.eval()
    found = log.measure(3)
    assert not net.training
    wanted = layer_statistics(net.train(), log.x, log.y)
    assert found == {
        f"layers/block{number}.2/{quantity}": pytest.approx(getattr(wanted[f"block{number}.2"], field))
        for number in (1, 2, 3)
        for quantity, field in (("rms", "rms"), ("gradient", "output_gradient"), ("dead_alpha", "dead_alpha"))
    }
    assert log.courses["alpha"] == {f"block{n}.2": [(3, pytest.approx(0.9))] for n in (1, 2, 3)}
    assert log.courses["beta"]["block2.2"] == [(3, 2.0)]


def test_segmentation_probes_with_masks():
    images = discs()
    log = LayerLog(nn.Sequential(nn.Conv2d(1, 1, 1), activations.build("prelu")), images, lambda x, y: (x * y).sum())
    assert torch.equal(log.y, images.masks[[0, 12]].float())
    assert set(log.measure(1)) == {"layers/1/rms", "layers/1/gradient"}
    assert log.courses["weight"] == {"1": [(1, 0.25)]}


def test_figure_and_state():
    log = LayerLog(network(), digits(), F.cross_entropy)
    assert log.figure(title="nothing yet") is None
    log.measure(0)
    again = LayerLog(network(), digits(), F.cross_entropy)
    again.courses = log.courses
    again.measure(1)
    panels = [axes.get_ylabel() for axes in again.figure(title="x").axes if axes.get_visible()]
    assert panels == ["alpha, as learned", "beta, as learned", "activation RMS", "gradient norm of the output"]
    assert [epoch for epoch, _ in again.courses["rms"]["block1.2"]] == [0, 1]
    nn.init.constant_(again.network.block1[2].alpha, 1.5)
    again.measure(2)
    assert again.figure(title="x").axes[4].get_ylabel() == "share of dead alpha"


@pytest.mark.parametrize("activation", ["arelu", None])
def test_switched_off_or_without_activations(activation: str | None):
    net = network(activation) if activation else nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    log = LayerLog(net, digits(), F.cross_entropy, enabled=activation is None)
    assert log.measure(0) == {}
    assert log.figure(title="") is None


def test_what_is_no_metric_is_drawn_all_the_same():
    log = LayerLog(network(), digits(), F.cross_entropy, as_metrics=False)
    assert log.measure(0) == {}
    assert set(log.courses) == {"alpha", "beta", "rms", "gradient", "dead_alpha"}
    assert log.figure(title="x") is not None
