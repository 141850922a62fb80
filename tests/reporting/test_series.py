import math
from dataclasses import replace

import pandas as pd
import pytest

from arelu_meta.analysis.arms import analyse
from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.charts import draw_figures
from arelu_meta.reporting.content import make_report
from arelu_meta.reporting.series import LineChart, arm_styles, curve_charts, rate_charts
from tests.reporting.sweeps import sweep


def with_curves(*rows: tuple[str, int, int, float], metric: str = "validation/accuracy") -> Findings:
    table = pd.DataFrame(rows, columns=["activation", "seed", "step", "value"]).assign(metric=metric)
    return sweep({"relu": 60.0, "arelu": 70.0}, curves=table)


def drawn(findings: Findings) -> list[LineChart]:
    return curve_charts(findings, analyse(findings).primary[0])


def test_mean_and_interval_over_seeds():
    """Values 1, 2, 3 at step 10: half-width 2.4841, as in the docstring of mean_interval."""
    (chart,) = drawn(with_curves(("relu", 0, 10, 1.0), ("relu", 1, 10, 2.0), ("relu", 2, 10, 3.0)))
    ((step, estimate),) = chart.lines["relu"]
    assert (step, estimate.mean, estimate.n) == (10, 2.0, 3)
    assert estimate.half_width == pytest.approx(2.4841, abs=1e-4)
    assert (chart.xlabel, chart.unit) == ("training step", "%")


def test_steps_that_not_all_seeds_reached_are_left_out():
    """A mean over changing seeds would jump where a seed drops out."""
    (chart,) = drawn(with_curves(("relu", 0, 0, 1.0), ("relu", 1, 0, 3.0), ("relu", 0, 5, 9.0), ("arelu", 0, 5, 4.0)))
    assert [(step, estimate.mean) for step, estimate in chart.lines["relu"]] == [(0, 2.0)]
    assert math.isnan(chart.lines["arelu"][0][1].low)  # one seed: a line without a band


def test_adaptation_runs_over_inner_steps():
    (chart,) = drawn(with_curves(("relu", 0, 0, 0.2), ("relu", 0, 1, 0.5), metric="test/accuracy_by_inner_step"))
    assert (chart.xlabel, chart.unit, chart.key) == ("inner step", "", "test-accuracy_by_inner_step")
    assert chart.steps


def test_losses_by_step_run_over_steps_whatever_the_others_do():
    rows = ("relu", 0, 1, 2.0), ("relu", 0, 2, 1.0)
    for metric, step in (("train/loss_by_step", "training step"), ("train/loss", "epoch")):
        (chart,) = drawn(replace(with_curves(*rows, metric=metric), step="epoch"))
        assert (chart.xlabel, chart.unit) == (step, "")


def test_long_curves_are_thinned_out_and_keep_their_ends():
    (chart,) = drawn(with_curves(*(("relu", 0, step, float(step)) for step in range(5000))))
    places = [step for step, _ in chart.lines["relu"]]
    assert len(places) == 200
    assert (places[0], places[-1]) == (0, 4999)


def test_curves_of_the_chosen_rate():
    findings = sweep({"relu": 60.0}, lrs=(0.001, 0.01, 0.1), best_lr={"relu": 0.01}, steps=3, arm_sd=0.1, seed_sd=0.1)
    (chart,) = drawn(findings)
    table = findings.curves
    last = table[(table["lr"] == 0.01) & (table["step"] == 20)]["value"].mean()
    assert chart.lines["relu"][-1][1].mean == pytest.approx(last)


def test_curves_name_what_they_run_over():
    (chart,) = drawn(replace(with_curves(("relu", 0, 0, 0.2), ("relu", 0, 1, 0.5)), step="epoch"))
    assert (chart.xlabel, chart.steps) == ("epoch", True)


def test_a_rate_of_zero_has_no_logarithm():
    findings = sweep({"relu": 60.0}, lrs=(0.1, 0.2))
    runs = findings.runs.assign(lr=findings.runs["lr"].replace(0.2, 0.0))
    for given, log in ((findings, True), (replace(findings, runs=runs), False)):
        (chart,) = rate_charts(analyse(given))
        assert chart.log is log


def test_no_curves():
    assert drawn(sweep()) == []
    assert drawn(replace(sweep(), curves=pd.DataFrame())) == []


def test_results_rate_charts():
    findings = sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.1, 0.001, 0.01))
    (chart,) = rate_charts(analyse(findings))
    assert [step for step, _ in chart.lines["arelu"]] == [0.001, 0.01, 0.1]
    means = findings.runs.groupby(["activation", "lr"])["test/accuracy"].mean()
    assert chart.lines["arelu"][2][1].mean == pytest.approx(means["arelu", 0.1])
    assert chart.log
    assert rate_charts(analyse(sweep())) == []
    assert rate_charts(analyse(sweep(lrs=(0.1,)))) == []  # one rate is no line


def test_those_that_matter_come_first():
    arms = {f"other{number}": 90.0 + number for number in range(12)}
    findings = sweep({**arms, "relu_gain": 50.0, "arelu": 60.0, "relu": 40.0})
    found = arm_styles(analyse(findings))
    assert [style.name for style in found[:3]] == ["relu", "arelu", "relu_gain"]
    assert [style.in_front for style in found] == [True] * 7 + [False] * 8
    assert len({(style.colour, style.dash) for style in found}) == 15  # all look different


def test_an_arm_looks_the_same_in_every_comparison():
    """Ranks turned round from one comparison to the next, as a report over two numbers of shots may have them."""
    arms = {f"other{number}": 60.0 + 10 * number for number in range(4)}
    near = sweep({**arms, "relu": 50.0}, arm_sd=0)
    far = sweep({**{name: 200.0 - value for name, value in arms.items()}, "relu": 50.0}, arm_sd=0)
    runs = pd.concat([near.runs.assign(shots=1), far.runs.assign(shots=5)], ignore_index=True)
    findings = replace(near, runs=runs, axes=("activation", "shots"))
    assert [comparison.arms[0].name for comparison in analyse(findings).primary] == ["other3", "other0"]
    plots = draw_figures(make_report(findings)).dots
    styles = [style for plot in plots for style, _, _ in plot.rows]
    assert len(styles) == 10
    assert len(set(styles)) == 5
