"""Against the runs that docs/results ships, worked out from the CSV with pandas and scipy alone."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from arelu_meta.analysis.arms import analyse
from arelu_meta.analysis.decisions import Outcome
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.rates import advantage_changes, good_decades, good_range
from tests.reporting.sweeps import sweep

RESULTS = Path(__file__).parents[2] / "docs" / "results"
REPORTS = [("learning_rates", "lr", 10.0), ("inner_rates", "inner_lr", 20.0), ("glyphs_rates", "inner_lr", 20.0)]


def shipped(name: str, axis: str, chance: float) -> Findings:
    runs = pd.read_csv(RESULTS / f"{name}_runs.csv")
    units = {"test/accuracy": "%", "validation/accuracy": "%"}
    given = {"validation_metric": "validation/accuracy", "units": units, "primary": "arelu", "chance": chance}
    return Findings(name, "", "", runs, ("activation", axis), "activation", "relu", "test/accuracy", **given)


def cube(name: str, axis: str, metric: str) -> pd.DataFrame:
    """The metric by rate and seed (rows) and arm (columns)."""
    return pd.read_csv(RESULTS / f"{name}_runs.csv").pivot(index=[axis, "seed"], columns="activation", values=metric)


@pytest.mark.parametrize(
    ("report", "worked_out"),
    list(zip(REPORTS, [None, (19.6, 7.9, 31.2), (19.4, 13.1, 25.8)], strict=True)),
    ids=[name for name, _, _ in REPORTS],
)
def test_the_advantage_at_the_smallest_rate_is_gone(report: tuple, worked_out: tuple[float, float, float] | None):
    """By scipy from the CSV, and for MAML by the figures of a review that had code of its own."""
    name, axis, _ = report
    table, chosen = cube(name, axis, "test/accuracy"), cube(name, axis, "validation/accuracy")
    means = chosen.groupby(axis).agg(lambda own: own.mean(skipna=False))
    best = {arm: means[arm].idxmax() for arm in ("arelu", "relu")}
    own = table.loc[best["arelu"], "arelu"] - table.loc[best["relu"], "relu"]
    smallest = table.index.get_level_values(axis).min()
    change = table.loc[smallest, "arelu"] - table.loc[smallest, "relu"] - own
    reference = stats.ttest_1samp(change, 0)
    interval = reference.confidence_interval()
    analysis = analyse(shipped(*report))
    found = advantage_changes(analysis, analysis.matched[0])[0]
    assert dict(found.setting) == {axis: smallest}
    shown = found.test.interval
    assert (shown.mean, shown.low, shown.high) == pytest.approx((change.mean(), interval.low, interval.high))
    if worked_out is not None:
        assert (shown.mean, shown.low, shown.high) == pytest.approx(worked_out, abs=0.06)
    assert found.test.p == pytest.approx(reference.pvalue)
    assert found.test.outcome is Outcome.DIFFERENT
    assert found.there - found.own == pytest.approx(shown.mean)


def test_the_page_of_findings_says_so(root: Path):
    """The rows of its table: lead at the smallest rate, lead at own rates, change, each with its interval."""
    text = (root / "docs" / "findings.md").read_text(encoding="utf-8")
    for name, axis, chance in REPORTS:
        analysis = analyse(shipped(name, axis, chance))
        change = advantage_changes(analysis, analysis.matched[0])[0]
        (row,) = [line for line in text.splitlines() if line.startswith(f"| [`{name}`]")]
        cells = [[float(found) for found in re.findall(r"[+-]?\d+\.\d+", cell)] for cell in row.split("|")[3:]]
        there, own = analysis.fixed[0].arm("arelu").test.interval, analysis.matched[0].arm("arelu").test.interval
        for cell, shown in zip(cells, (there, own, change.test.interval), strict=False):
            assert cell[:3] == pytest.approx([shown.mean, shown.low, shown.high], abs=0.051)
        assert f"| {change.test.difference.n} |" in row


@pytest.mark.parametrize(("report", "mean"), list(zip(REPORTS[:2], (97.55, 83.94), strict=True)))
def test_the_choice_with_the_seed_left_out(report: tuple, mean: float):
    """By pandas: for each seed the best mean of the others on validation, and the result of that seed there."""
    name, axis, _ = report
    table, chosen = cube(name, axis, "test/accuracy")["arelu"], cube(name, axis, "validation/accuracy")["arelu"]
    results = {}
    for seed in table.index.get_level_values("seed").unique():
        others = chosen[chosen.index.get_level_values("seed") != seed]
        rate = others.groupby(axis).agg(lambda own: own.mean(skipna=False)).idxmax()
        results[seed] = table[(rate, seed)]
    arm = analyse(shipped(*report)).matched[0].arm("arelu")
    assert arm.left_out.to_dict() == pytest.approx(results, nan_ok=True)
    assert arm.left_out.mean() == pytest.approx(mean, abs=0.005)


def test_with_the_seed_left_out_to_the_baseline():
    """The review's figures for inner_rates: -5.2 [-9.4, -1.0]."""
    (matched,) = analyse(shipped(*REPORTS[1])).matched
    difference = matched.arm("arelu").left_out - matched.arm("relu").left_out
    interval = stats.ttest_1samp(difference, 0).confidence_interval()
    assert (difference.mean(), interval.low, interval.high) == pytest.approx((-5.2, -9.4, -1.0), abs=0.06)


def rates(scores: dict[float, list[float]]) -> pd.DataFrame:
    cells = [(rate, seed, score) for rate, own in scores.items() for seed, score in enumerate(own)]
    return pd.DataFrame(cells, columns=["lr", "seed", "validation/accuracy"])


FINDINGS = sweep({"relu": 60.0}, axes=("activation", "lr"))


def test_the_good_range():
    """Best at 0.1 with 90; 0.01 and 0.03 are within 2 points; 0.001 is too, but 0.003 between is not."""
    table = rates({0.001: [89.0], 0.003: [80.0], 0.01: [88.5], 0.03: [88.0], 0.1: [90.0], 0.3: [87.9]})
    assert good_range(FINDINGS, table, "lr") == (0.01, 0.1)
    assert good_range(FINDINGS, table.sample(frac=1, random_state=0), "lr") == (0.01, 0.1)


def test_a_rate_that_diverges_is_not_good():
    table = rates({0.01: [90.0, 90.0], 0.1: [95.0, math.nan]})
    assert good_range(FINDINGS, table, "lr") == (0.01, 0.01)
    assert all(math.isnan(end) for end in good_range(FINDINGS, rates({0.1: [math.nan]}), "lr"))
    assert all(math.isnan(end) for end in good_range(replace(FINDINGS, validation_metric=None), table, "lr"))


def test_decades_of_each_arm():
    """8 points per squared decade: a third of a decade costs 0.9, two thirds 3.6, so three rates of one are good."""
    rates_tried = tuple(10 ** (step / 3) for step in range(-9, 1))
    findings = sweep(
        {"relu": 70.0, "arelu": 70.0},
        lrs=rates_tried,
        best_lr=dict.fromkeys(("relu", "arelu"), rates_tried[5]),
        arm_sd=0.0,
    )
    findings = replace(findings, runs=findings.runs.assign(**{"validation/accuracy": findings.runs["test/accuracy"]}))
    analysis = analyse(findings)
    assert good_decades(analysis, analysis.matched[0]) == pytest.approx({"relu": 2 / 3, "arelu": 2 / 3})
    plain = analyse(replace(findings, units={}))
    assert good_decades(plain, plain.matched[0]) == {}


def test_an_advantage_that_stays():
    """arelu is 10 points ahead wherever both have one rate, and at its own: the change is noise."""
    same = dict.fromkeys(("relu", "arelu"), 0.01)
    analysis = analyse(sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.001, 0.01, 0.1), best_lr=same))
    changes = advantage_changes(analysis, analysis.matched[0])
    assert [dict(change.setting)["lr"] for change in changes] == [0.001, 0.01, 0.1]
    assert [change.test.family for change in changes] == [1, 1, 1]  # at 0.01 it is the same runs: identical
    assert changes[1].test.outcome is Outcome.IDENTICAL
    assert not any(change.test.differs for change in changes)


def test_no_change_without_a_choice():
    analysis = analyse(sweep({"relu": 60.0, "arelu": 70.0}))
    assert advantage_changes(analysis, analysis.primary[0]) == []
    several = analyse(sweep({"relu": 60.0, "elu": 1.0, "celu": 2.0}, lrs=(0.01, 0.1)))  # no explained arm
    assert advantage_changes(several, several.matched[0]) == []


def test_each_other_setting_has_changes_of_its_own():
    findings = sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.01, 0.1))
    both = pd.concat([findings.runs.assign(shots=1), findings.runs.assign(shots=5)])
    analysis = analyse(replace(findings, runs=both, axes=("activation", "shots", "lr")))
    changes = advantage_changes(analysis, analysis.matched[1])
    assert [dict(change.setting) for change in changes] == [{"shots": 5, "lr": 0.01}, {"shots": 5, "lr": 0.1}]
    assert np.isfinite([change.test.p for change in changes]).any()
