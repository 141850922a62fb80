import io
import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from torch import nn

from arelu_meta import activations
from arelu_meta.pictures.figures import activation_curves, layer_curves, rate_figure, training_curve

pytestmark = pytest.mark.figures


def test_training_curve_draws_every_series():
    series = {"train": [(1, 0.2), (2, 0.4), (3, 0.5)], "validation": [(3, 0.45)], "empty": []}
    axes = training_curve(series, title="a run", ylabel="query accuracy").axes[0]
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert drawn == {
        "train (n = 3)": [[1, 0.2], [2, 0.4], [3, 0.5]],
        "validation (n = 1)": [[3, 0.45]],
        "empty (n = 0)": [],
    }
    assert axes.get_title() == "a run"
    assert axes.get_ylabel() == "query accuracy"


def test_activation_curves_show_what_each_layer_computes():
    net = nn.Sequential(activations.build("arelu"), nn.Linear(2, 2), activations.build("relu"))
    nn.init.constant_(net[0].alpha, 0.5)
    figure = activation_curves(net, title="learned", limit=2.0)
    lines = {line.get_label(): line for line in figure.axes[0].lines if not line.get_label().startswith("_")}
    assert set(lines) == {"0", "2"}
    x, y = lines["0"].get_data()
    assert (x[0], x[-1]) == (-2.0, 2.0)
    np.testing.assert_allclose(y[x < 0], 0.5 * x[x < 0], rtol=1e-6)
    np.testing.assert_allclose(lines["2"].get_ydata(), np.maximum(x, 0), rtol=1e-6)


@pytest.mark.parametrize("clamp", ["hard", "straight_through", "sigmoid"])
def test_activation_curves_shade_what_alpha_and_beta_can_reach(clamp: str):
    """Slopes from 0.01 to 0.99 below zero, and 1 + sigmoid(beta), from 1 to 2, above: at 2, from 2 to 4."""
    net = nn.Sequential(activations.build("arelu", clamp=clamp))
    before = net[0].alpha.item(), net[0].beta.item()
    (shade,) = activation_curves(net, title="learned", limit=2.0).axes[0].collections
    corners = shade.get_paths()[0].vertices
    at = {x: np.sort(corners[np.isclose(corners[:, 0], x), 1])[[0, -1]] for x in (-2.0, 2.0)}
    np.testing.assert_allclose(at[-2.0], [-1.98, -0.02], atol=1e-3)
    np.testing.assert_allclose(at[2.0], [2.0, 4.0], atol=1e-3)
    assert (net[0].alpha.item(), net[0].beta.item()) == before
    assert not activation_curves(nn.Sequential(activations.build("relu")), title="").axes[0].collections


@pytest.mark.parametrize("layer", [nn.Linear(2, 2), activations.build("maxout")])
def test_no_figure_without_elementwise_activations(layer: nn.Module):
    assert activation_curves(nn.Sequential(layer), title="none") is None


def test_more_layers_than_colours():
    """Nine layers: colours repeat after seven with another line style, so all lines look different."""
    net = nn.Sequential(*(activations.build("relu") for _ in range(9)))
    lines = [line for line in activation_curves(net, title="").axes[0].lines if not line.get_label().startswith("_")]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 9


def test_figures_are_drawn_off_screen():
    stream = io.BytesIO()
    training_curve({"train": [(1, 0.5)]}, title="", ylabel="").savefig(stream, format="png")
    assert stream.getvalue().startswith(b"\x89PNG")


def test_rates_with_their_best_and_their_lost_ones():
    """Two arms over two decades; one run of `b` diverged: three marks of `b` in all, the cross at its rate."""
    series = {"a": [(0.01, 0.5), (0.1, 0.9)], "b": [(0.01, 0.7), (0.1, math.nan)]}
    figure = rate_figure(series, {"a": (0.1, 0.9), "b": (0.01, 0.7)}, title="two arms")
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [line.get_xdata()[0] for line in crosses] == [0.1]
    best = [line for line in axes.lines if line.get_markersize() == 8]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in best] == [(0.1, 0.9), (0.01, 0.7)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def saved(figure: Figure, folder: Path) -> None:
    figure.savefig(folder / "figure.png")
    assert (folder / "figure.png").stat().st_size > 5_000


def test_a_panel_per_quantity_and_a_line_per_layer(tmp_path: Path):
    curves = {
        "alpha": {"one": [(0, 0.9), (1, 0.8)], "two": [(0, 0.9), (1, 0.95)]},
        "beta": {"one": [(0, 2.0), (1, 2.1)], "two": [(0, 2.0), (1, 1.9)]},
        "rms": {"one": [(0, 1.0), (1, 1.5)], "two": [(0, 3.0), (1, 4.0)]},
    }
    figure = layer_curves(curves, title="a run", n=7)
    drawn = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_ylabel() for axes in drawn] == ["alpha, as learned", "beta, as learned", "activation RMS"]
    lines = {line.get_label(): line.get_xydata().tolist() for line in drawn[2].lines}
    assert lines == {"one": [[0, 1.0], [1, 1.5]], "two": [[0, 3.0], [1, 4.0]]}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    assert "n = 7 training images" in str(figure.get_suptitle())
    saved(figure, tmp_path)


def test_many_layers_are_coloured_by_depth(tmp_path: Path):
    curves = {"rms": {f"layer{number}": [(0, 1.0), (1, number)] for number in range(17)}}
    figure = layer_curves(curves, title="deep", n=2)
    assert not figure.legends
    assert len({tuple(line.get_color()) for line in figure.axes[0].lines}) == 17
    assert figure.axes[1].get_ylabel() == "layer, first to last of 17"
    saved(figure, tmp_path)
