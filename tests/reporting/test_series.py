import math
from dataclasses import replace

import pandas as pd
import pytest

from arelu_meta.analysis.analyse import analyse
from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.series import LineChart, curves, over_rates
from tests.reporting.sweeps import sweep


def with_curves(*rows: tuple[str, int, int, float], metric: str = "validation/accuracy") -> Findings:
    table = pd.DataFrame(rows, columns=["activation", "seed", "step", "value"]).assign(metric=metric)
    return sweep({"relu": 60.0, "arelu": 70.0}, curves=table)


def drawn(findings: Findings) -> list[LineChart]:
    return curves(findings, analyse(findings).judged[0])


def test_mean_and_interval_over_seeds():
    """Values 1, 2, 3 at step 10: half-width 2.4841, as in the docstring of mean_interval."""
    (chart,) = drawn(with_curves(("relu", 0, 10, 1.0), ("relu", 1, 10, 2.0), ("relu", 2, 10, 3.0)))
    (point,) = chart.lines["relu"]
    assert (point.x, point.mean, point.n) == (10, 2.0, 3)
    assert point.high - point.mean == pytest.approx(2.4841, abs=1e-4)
    assert (chart.xlabel, chart.unit, chart.seeds) == ("training step", "%", "n = 3 seeds")


def test_steps_that_not_all_seeds_reached_are_left_out():
    """A mean over changing seeds would jump where a seed drops out."""
    (chart,) = drawn(with_curves(("relu", 0, 0, 1.0), ("relu", 1, 0, 3.0), ("relu", 0, 5, 9.0), ("arelu", 0, 5, 4.0)))
    assert [(point.x, point.mean) for point in chart.lines["relu"]] == [(0, 2.0)]
    assert math.isnan(chart.lines["arelu"][0].low)  # one seed: a line without a band


def test_adaptation_runs_over_inner_steps():
    (chart,) = drawn(with_curves(("relu", 0, 0, 0.2), ("relu", 0, 1, 0.5), metric="test/accuracy_by_inner_step"))
    assert (chart.xlabel, chart.unit, chart.key) == ("inner step", "", "test-accuracy_by_inner_step")
    assert chart.steps


def test_long_curves_are_thinned_out_and_keep_their_ends():
    (chart,) = drawn(with_curves(*(("relu", 0, step, float(step)) for step in range(5000))))
    places = [point.x for point in chart.lines["relu"]]
    assert len(places) == 200
    assert (places[0], places[-1]) == (0, 4999)


def test_curves_of_the_chosen_rate():
    findings = sweep({"relu": 60.0}, lrs=(0.001, 0.01, 0.1), best_lr={"relu": 0.01}, steps=3, arm_sd=0.1, seed_sd=0.1)
    (chart,) = drawn(findings)
    table = findings.curves
    last = table[(table["lr"] == 0.01) & (table["step"] == 20)]["value"].mean()
    assert chart.lines["relu"][-1].mean == pytest.approx(last)


def test_curves_name_what_they_run_over():
    (chart,) = drawn(replace(with_curves(("relu", 0, 0, 0.2), ("relu", 0, 1, 0.5)), step="epoch"))
    assert (chart.xlabel, chart.steps) == ("epoch", True)


def test_a_rate_of_zero_has_no_logarithm():
    findings = sweep({"relu": 60.0}, lrs=(0.1, 0.2))
    runs = findings.runs.assign(lr=findings.runs["lr"].replace(0.2, 0.0))
    for given, log in ((findings, True), (replace(findings, runs=runs), False)):
        (chart,) = over_rates(analyse(given))
        assert chart.log is log


def test_no_curves():
    assert drawn(sweep()) == []
    assert drawn(replace(sweep(), curves=pd.DataFrame())) == []


def test_results_over_rates():
    findings = sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.1, 0.001, 0.01))
    (chart,) = over_rates(analyse(findings))
    assert [point.x for point in chart.lines["arelu"]] == [0.001, 0.01, 0.1]
    means = findings.runs.groupby(["activation", "lr"])["test/accuracy"].mean()
    assert chart.lines["arelu"][2].mean == pytest.approx(means["arelu", 0.1])
    assert chart.log
    assert over_rates(analyse(sweep())) == []
    assert over_rates(analyse(sweep(lrs=(0.1,)))) == []  # one rate is no line
