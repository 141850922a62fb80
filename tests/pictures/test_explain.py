"""Grad-CAM and layer statistics worked out on paper, and the pictures."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.activations.parameters import activation_modules
from arelu_meta.errors import InputError
from arelu_meta.pictures.explain import (
    dead_alpha_share,
    feature_maps_figure,
    find_layer,
    grad_cam,
    grad_cam_figure,
    layer_statistics,
)


def fill(parameter: nn.Parameter, values: object) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(values))


def tiny() -> nn.Module:
    """Two maps A = (x, -x) by a 1x1 convolution, then a linear head of two classes on all eight pixels."""
    network = nn.Sequential()
    network.add_module("conv", nn.Conv2d(1, 2, 1, bias=False))
    network.add_module("flat", nn.Flatten())
    network.add_module("head", nn.Linear(8, 2, bias=False))
    fill(network.conv.weight, [[[[1.0]]], [[[-1.0]]]])
    fill(network.head.weight, [[4.0, 0, 0, 0, 1, 1, 1, 1], [0.0, 0, 0, 0, 2, 2, 2, 2]])
    return network


def net(activation: str, name: str = "conv4", side: int = 16, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return backbones.build(
        name,
        activation=activations.factory(activation),
        channels=3,
        image_size=(side, side),
        classes=4,
        **options,
    )


def images(n: int, side: int = 16) -> Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(0))


class TestGradCam:
    def test_by_hand(self):
        """x = [[1, -2], [3, 0]]. The score of class 0 has gradient 4, 0, 0, 0 for A_0 and 1 everywhere for A_1.

        Class 0: a = (mean(4, 0, 0, 0), 1) = (1, 1), so the map is ReLU(x - x) = 0.
        Class 1: a = (0, 2), so the map is ReLU(-2 x) = [[0, 4], [0, 0]].
        With 8 for 4 in the head, class 0 has a = (2, 1): ReLU(2 x - x) = [[1, 0], [3, 0]].
        """
        x = torch.tensor([[[[1.0, -2.0], [3.0, 0.0]]]])
        network = tiny()
        assert grad_cam(network, x, 0, layer="conv").tolist() == [[[0, 0], [0, 0]]]
        assert grad_cam(network, x, 1, layer="conv").tolist() == [[[0, 4], [0, 0]]]
        fill(network.head.weight, [[8.0, 0, 0, 0, 1, 1, 1, 1], [0.0, 0, 0, 0, 2, 2, 2, 2]])
        assert grad_cam(network, x, 0, layer="conv").tolist() == [[[1, 0], [3, 0]]]
        each = grad_cam(network, torch.cat([x, x]), torch.tensor([0, 1]), layer="conv")
        assert each.tolist() == [[[1, 0], [3, 0]], [[0, 4], [0, 0]]]

    def test_by_the_formula_on_a_network(self):
        """Gradients and maps taken apart by hand: the layer's output as a leaf, the rest of the network after it."""
        network, x = net("arelu").eval(), images(3)
        with torch.no_grad():
            maps = network.blocks[:2](x)
        maps.requires_grad_()
        logits = network.head(network.blocks[2:](maps).flatten(1))
        logits[:, 2].sum().backward()
        assert maps.grad is not None
        expected = torch.einsum("nk,nkhw->nhw", maps.grad.mean((2, 3)), maps.detach()).relu()
        assert expected.max() > 0
        found = grad_cam(network, x, 2, layer="blocks.1", upsample=False)
        assert found.shape == (3, 4, 4)
        assert torch.allclose(found, expected, atol=1e-6)
        upsampled = F.interpolate(expected[:, None], (16, 16), mode="bilinear")[:, 0]
        assert torch.allclose(grad_cam(network, x, 2, layer="blocks.1"), upsampled, atol=1e-6)

    def test_of_a_segmentation_network(self):
        """The class score is the sum of the logits over the plane."""
        network, x = net("relu", "unet", filters=4).eval(), images(2)
        maps = network.features(x).detach()
        weights = network.head.weight[3, :, 0, 0].detach()  # each pixel's gradient, so also their mean
        expected = torch.einsum("k,nkhw->nhw", weights, maps).relu()
        assert expected.max() > 0
        assert torch.allclose(grad_cam(network, x, 3, layer="join.3"), expected, atol=1e-6)

    def test_leaves_the_network_as_it_was(self):
        network, x = net("arelu", norm="running"), images(2)
        network.blocks[0].eval()
        before = {key: value.clone() for key, value in network.state_dict().items()}
        grad_cam(network, x, 0, layer="blocks.1")
        assert network.training
        assert network.blocks[1].training
        assert not network.blocks[0].training
        assert all(parameter.grad is None for parameter in network.parameters())
        assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
        assert all(not module._forward_hooks for module in network.modules())

    def test_of_a_frozen_network_without_gradients(self):
        network, x = net("relu"), images(2)
        expected = grad_cam(network, x, 0, layer="blocks.1")
        with torch.no_grad():
            assert torch.equal(grad_cam(network.requires_grad_(False), x, 0, layer="blocks.1"), expected)

    def test_unknown_layer_suggests_near_ones(self):
        with pytest.raises(InputError, match=r"unknown layer 'block\.1'; near names: blocks\.1"):
            grad_cam(net("relu"), images(1), 0, layer="block.1")
        with pytest.raises(InputError, match=r"unknown layer ''; near names: blocks, head"):
            find_layer(net("relu"), "")

    def test_layer_without_feature_maps(self):
        with pytest.raises(InputError, match=r"'head' gives \(2, 4\)"):
            grad_cam(net("relu"), images(2), 0, layer="head")
        network = net("relu")
        network.unused = nn.Conv2d(3, 3, 1)
        with pytest.raises(InputError, match="'unused' is not called"):
            grad_cam(network, images(2), 0, layer="unused")

    @pytest.mark.parametrize("target", [4, -1, torch.tensor([0, 9])])
    def test_class_that_is_not_there(self, target: int | Tensor):
        with pytest.raises(InputError, match="below the network's 4 classes"):
            grad_cam(net("relu"), images(2), target, layer="blocks.1")

    def test_says_which_extra_to_install(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "captum.attr", None)
        with pytest.raises(InputError, match=r"pip install 'arelu-meta\[explain\]'"):
            grad_cam(tiny(), torch.zeros(1, 1, 2, 2), 0, layer="conv")


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


class TestFigures:
    def test_feature_maps_are_those_of_the_layer(self, tmp_path: Path):
        networks = {"relu": net("relu"), "arelu": net("arelu")}
        image = images(1)[0]
        figure = feature_maps_figure(networks, image, layer="blocks.0.2", channels=5)
        panels = [axes for axes in figure.axes if axes.images and axes.get_title() != "input"]
        drawn = torch.stack([torch.as_tensor(axes.images[0].get_array().data) for axes in panels[: 4 * 5]])
        before, after, before_arelu, after_arelu = drawn.unflatten(0, (4, 5))
        assert torch.allclose(after, before.relu())
        assert torch.equal(before, before_arelu)  # the same initial weights
        assert torch.allclose(after_arelu, activations.build("arelu")(before).detach())
        labels = [axes.get_ylabel() for axes in panels if axes.get_ylabel()]
        assert labels == ["relu\nbefore", "relu\nafter", "arelu\nbefore", "arelu\nafter"]
        scales = {axes.images[0].get_clim() for axes in panels[: 4 * 5]}
        assert len(scales) == 1
        saved(figure, tmp_path)

    def test_feature_maps_of_maxout_and_of_few_channels(self, tmp_path: Path):
        figure = feature_maps_figure({"maxout": net("maxout", filters=3)}, images(1)[0], layer="blocks.0.2")
        assert "3 of 3 channels" in str(figure.get_suptitle())
        saved(figure, tmp_path)

    def test_feature_maps_of_a_layer_without_any(self):
        with pytest.raises(InputError, match="'head' passes no feature maps"):
            feature_maps_figure({"relu": net("relu")}, images(1)[0], layer="head")

    def test_grad_cam_figure(self, tmp_path: Path):
        x = images(3)
        maps = {name: grad_cam(net(name), x, 1, layer="blocks.1") for name in ("relu", "arelu")}
        maps["arelu"][0] = 0  # nothing speaks for the class
        figure = grad_cam_figure(x, maps, titles=["a", "b", "c"])
        shown = [axes for axes in figure.axes if axes.images]
        assert [axes.get_ylabel() for axes in shown if axes.get_ylabel()] == ["input", "relu", "arelu"]
        heat = torch.as_tensor(shown[3 + 1].images[1].get_array().data)
        assert torch.allclose(heat, maps["relu"][1] / maps["relu"][1].max())
        saved(figure, tmp_path)


def total(logits: Tensor, _: Tensor) -> Tensor:
    return logits.sum()


def saved(figure: Figure, folder: Path) -> None:
    figure.savefig(folder / "figure.png")
    assert (folder / "figure.png").stat().st_size > 5_000
