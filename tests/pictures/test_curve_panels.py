import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from arelu_meta.pictures.curve_panels import BLACK, STYLES, VERMILION, Panel, curve_panels


def line(*seeds: list[float]) -> pd.DataFrame:
    return pd.DataFrame(dict(enumerate(seeds)), index=range(1, len(seeds[0]) + 1))


def test_mean_and_range_over_seeds():
    """1, 3 and 2, 5: means 1.5 and 4, from 1 to 2 and from 3 to 5."""
    axes = curve_panels([Panel("a", "loss", {"x": line([1.0, 3.0], [2.0, 5.0])})], title="t").axes[0]
    assert axes.lines[0].get_ydata().tolist() == [1.5, 4.0]
    corners = {tuple(point) for point in axes.collections[0].get_paths()[0].vertices.tolist()}
    assert {(1, 1), (1, 2), (2, 3), (2, 5)} <= corners


def test_steps_that_a_seed_did_not_reach_are_left_out():
    axes = curve_panels([Panel("a", "loss", {"x": line([1.0, 2.0], [3.0, float("nan")])})], title="t").axes[0]
    assert axes.lines[0].get_ydata().tolist() == [2.0]


def test_a_line_looks_the_same_in_every_panel_and_the_subject_in_all_figures():
    one, two = {"relu": line([1.0]), "selu": line([1.0]), "arelu": line([2.0])}, {"selu": line([1.0])}
    first, second = curve_panels([Panel("a", "loss", one), Panel("b", "loss", two)], title="t").axes[:2]
    colours = {drawn.get_label(): to_hex(drawn.get_color()).upper() for drawn in first.lines}
    assert (colours["relu"], colours["arelu"]) == (BLACK, VERMILION)
    assert to_hex(second.lines[0].get_color()).upper() == colours["selu"]


def test_every_name_of_nineteen_is_within_the_figure_and_two_lines_are_bold():
    names = [f"activation {number}" for number in range(17)]
    figure = curve_panels([Panel("a", "loss", {name: line([1.0]) for name in ("relu", *names, "arelu")})], title="t")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    whole = figure.legends[0].get_window_extent(canvas.get_renderer())
    assert 0 <= whole.y0 <= whole.y1 <= figure.bbox.height
    assert whole.x1 <= figure.bbox.width
    widths = {drawn.get_label(): drawn.get_linewidth() for drawn in figure.axes[0].lines}
    assert min(widths["relu"], widths["arelu"]) > max(widths[name] for name in names)


def test_nineteen_lines_are_told_apart():
    assert len(set(STYLES)) == len(STYLES) >= 18


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"x": line([1.0])}, "t (n = 1 seed)"),
        ({"x": line([1.0], [2.0])}, "t (n = 2 seeds: mean and range)"),
        ({"x": line([1.0], [2.0]), "y": line([1.0])}, "t (n = 1 to 2 seeds: mean and range)"),
    ],
)
def test_the_number_of_seeds_is_said(lines, said):
    assert curve_panels([Panel("a", "loss", lines)], title="t").get_suptitle() == said
