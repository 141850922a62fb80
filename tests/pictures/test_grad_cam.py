"""Grad-CAM worked out on paper, and the pictures."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from arelu_meta import activations
from arelu_meta.errors import InputError
from arelu_meta.pictures.grad_cam import feature_maps_figure, find_layer, grad_cam, grad_cam_figure
from tests.pictures.small_networks import fill, images, net, tiny

pytestmark = pytest.mark.figures


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

    def test_columns_and_titles_stay_in_place(self):
        """Each map stands below its image, and one channel is no narrower than the title."""
        cams = grad_cam_figure(images(3), {"relu": torch.rand(3, 16, 16)})
        cams.draw_without_rendering()
        edges = [axes.get_position().x0 for axes in cams.axes[:6]]
        assert edges[:3] == pytest.approx(edges[3:])
        six = grad_cam_figure(images(6), {"relu": torch.rand(6, 16, 16), "arelu": torch.rand(6, 16, 16)})
        six.suptitle("a title, as look writes it")
        six.draw_without_rendering()
        assert min(axes.yaxis.label.get_window_extent().x0 for axes in six.axes[:13:6]) > 2  # names of rows, in pixels
        maps = feature_maps_figure({"relu": net("relu")}, images(1)[0], layer="blocks.0.2", channels=1)
        maps.draw_without_rendering()
        title = maps._suptitle.get_window_extent()
        assert 0 < title.x0 < title.x1 < maps.bbox.width

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


def saved(figure: Figure, folder: Path) -> None:
    figure.savefig(folder / "figure.png")
    assert (folder / "figure.png").stat().st_size > 5_000
