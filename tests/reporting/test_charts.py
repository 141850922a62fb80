import json
import math
from dataclasses import replace

import pytest

from arelu_meta.analysis.estimates import Estimate
from arelu_meta.reporting.charts import DotPlot, Scale, draw_figures, line_plot
from arelu_meta.reporting.content import make_report
from arelu_meta.reporting.series import ArmStyle, LineChart
from tests.reporting.sweeps import sweep

STYLE = ArmStyle(0, "arelu", "", 1, "", True)


def test_places_on_a_scale():
    scale = Scale.covering([10.0, 20.0], margin=0.0)
    assert [scale.percent(value) for value in (10, 15, 20, 25)] == [0, 50, 100, 150]
    log = Scale.covering([0.001, 0.1], log=True, margin=0.0)
    assert [log.percent(value) for value in (0.001, 0.01, 0.1)] == pytest.approx([0, 50, 100])


def test_ticks_lie_inside_and_say_what_they_are():
    """Steps of 2.5 need a decimal: 78 would be a wrong label for 77.5."""
    scale = Scale(74.0, 84.0)
    for tick, text in scale.ticks(4):
        assert 74 <= tick <= 84
        assert float(text) == tick
    assert [text for _, text in Scale(-3.0, -1.0, log=True).ticks()] == ["0.001", "0.01", "0.1"]
    assert all(tick == round(tick) for tick, _ in Scale(0.0, 5.2, whole=True).ticks())


@pytest.mark.parametrize("values", [[], [math.nan], [0.0], [7.0], [-7.0, -7.0]])
def test_few_values(values: list[float]):
    scale = Scale.covering(values)
    assert scale.high > scale.low
    assert scale.ticks()


def dots(**fields: object) -> DotPlot:
    return draw_figures(make_report(sweep(**fields))).dots[0]


def test_places_are_proportional():
    """60 and 80 with room of 4 % on both sides: at 4 / 108 and 104 / 108 of the width."""
    plot = dots(truth={"relu": 60.0, "arelu": 80.0}, seeds=[0], seed_sd=0, arm_sd=0)
    assert [style.name for style, _, _ in plot.rows] == ["arelu", "relu"]  # the best first
    places = [strips[0].dots[0][1] for _, _, strips in plot.rows]
    assert places == pytest.approx([100 * 104 / 108, 100 * 4 / 108])
    assert [strips[0].line for _, _, strips in plot.rows] == pytest.approx([100 * 4 / 108] * 2)  # the baseline


def test_dots_are_the_seeds_and_their_differences():
    plot = dots(truth={"relu": 60.0, "arelu": 70.0})
    table = sweep({"relu": 60.0, "arelu": 70.0}).runs.pivot(index="seed", columns="activation", values="test/accuracy")
    _, n, (values, differences) = plot.rows[0]
    assert n == 5
    assert [text for _, _, text in values.dots] == [f"seed {seed}: {table['arelu'][seed]:.2f}" for seed in range(5)]
    apart = table["arelu"] - table["relu"]
    assert [text for _, _, text in differences.dots] == [f"seed {seed}: {apart[seed]:+.2f}" for seed in range(5)]
    assert [label for label, _ in plot.axes] == ["test/accuracy (%)", "difference to relu (points)"]
    assert values.label.startswith(f"arelu: mean {table['arelu'].mean():.2f} [")
    assert differences.label.startswith(f"arelu: difference +{apart.mean():.2f} [")
    assert plot.rows[1][2][1].dots == ()  # the baseline has no difference to itself


def test_wide_intervals_do_not_squeeze_the_points():
    """Two seeds: the t interval is 9 times as wide as the points are apart, and runs out of the figure."""
    plot = dots(truth={"relu": 60.0, "arelu": 60.0}, seeds=[0, 1])
    assert min(strip.bar[0] for _, _, strips in plot.rows for strip in strips if strip.bar) < 0


def test_without_a_baseline_there_are_no_differences():
    plot = dots(truth={"elu": 60.0, "arelu": 80.0})
    assert len(plot.axes) == 1
    assert "dashed" not in plot.legend


def test_an_arm_without_results():
    findings = sweep({"relu": 60.0, "arelu": 70.0, "pau": 1.0})
    runs = findings.runs.copy()
    runs.loc[runs["activation"] == "pau", "test/accuracy"] = math.nan
    (plot,) = draw_figures(make_report(replace(findings, runs=runs))).dots
    _, _, strips = plot.rows[-1]
    assert (strips[0].dots, strips[0].mean, strips[0].bar) == ((), None, None)


def chart(*points: tuple[float, float, float, float, int], log: bool = False) -> LineChart:
    line = [(x, Estimate(mean, low, high, n)) for x, mean, low, high, n in points]
    return LineChart("key", "test/accuracy", "training step", "%", {"arelu": line}, log)


def test_values_for_the_pointer():
    plot = line_plot(chart((0, 20.0, 19.0, 21.0, 5), (10, 30.123456, math.nan, math.nan, 1)), [STYLE], "curve")
    assert json.loads(plot.lines[0].points) == [[0.0, 20.0, 19.0, 21.0], [10.0, 30.123, None, None]]
    assert plot.title == "test/accuracy (%)"
    assert plot.legend == "Mean and 95 % t interval over n = 1 to 5 seeds."


def test_a_line_from_corner_to_corner():
    """x from 0 to 10 with 2 % room: at 20 / 1040 and 1020 / 1040 of 1000."""
    plot = line_plot(chart((0, 1.0, 1.0, 1.0, 2), (10, 2.0, 2.0, 2.0, 2)), [STYLE], "curve")
    assert plot.lines[0].path == "19.2,963.0 980.8,37.0"
    assert len(plot.lines[0].marks) == 2


def test_powers_of_ten():
    plot = line_plot(chart((0.001, 1, 1, 1, 2), (0.01, 1, 1, 1, 2), (0.1, 2, 2, 2, 2), log=True), [STYLE], "curve")
    places = [float(corner.split(",")[0]) for corner in plot.lines[0].path.split()]
    assert round(places[1] - places[0], 1) == round(places[2] - places[1], 1)


def test_figures_in_the_order_they_are_read():
    figures = draw_figures(make_report(sweep(steps=4, lrs=(0.001, 0.01, 0.1))))
    assert [plot.name for plot in figures.all] == ["arms", "curve-validation-accuracy", "over-lr"]
    assert json.loads(figures.rates[0].scale)[2] is True
