# ruff: noqa: RUF001
"""Speed of adaptation: areas and times against scipy and by hand, and that they are judged like a final accuracy."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, optimize, stats

from arelu_meta.analysis.arms import Arm, analyse
from arelu_meta.analysis.decisions import Outcome
from arelu_meta.analysis.failures import AT_CHANCE, DIVERGED, NOT_REACHED
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.speed import (
    curve_area,
    first_reaching,
    is_speed,
    measured_runs,
    speed_metrics,
    speed_names,
    time_unit,
)
from arelu_meta.reporting.content import make_report
from arelu_meta.reporting.report import report_metrics, report_summary
from arelu_meta.reporting.table import numbers_frame

AREA, STEPS = "test/accuracy_area", "test/steps_to_80"


def findings(steps: dict[str, list[float]], accuracy: dict[str, list[float]] | None = None) -> Findings:
    """Steps by arm and seed; areas are 90 less ten times the steps, accuracies 85 unless they are given."""
    rows = [
        {
            "activation": arm,
            "seed": seed,
            "test/accuracy": accuracy[arm][seed] if accuracy else 85.0 + seed / 10,
            AREA: 90 - 10 * (value if math.isfinite(value) else 5),
            STEPS: value,
        }
        for arm, values in steps.items()
        for seed, value in enumerate(values)
    ]
    return Findings(
        name="simulated",
        title="",
        question="",
        runs=pd.DataFrame(rows),
        axes=("activation",),
        arm="activation",
        baseline="relu",
        metric="test/accuracy",
        units={"test/accuracy": "%", AREA: "%", STEPS: "steps"},
        other_metrics={AREA: AREA, STEPS: STEPS},
        chance=20.0,
        margin=3.0,
        primary="arelu",
    )


def arms(found: Findings, metric: str) -> dict[str, Arm]:
    (speed,) = [one for one in analyse(found).speeds if one.findings.metric == metric]
    return {arm.name: arm for arm in speed.primary[0].arms}


@pytest.mark.parametrize("seed", range(5))
def test_areas_and_times_are_scipys(seed: int):
    """A curve that rises by chance, at steps that are not evenly spaced."""
    random = np.random.default_rng(seed)
    steps, scores = np.cumsum(random.uniform(0.5, 2, 7)), np.sort(random.uniform(0.2, 0.9, 7))
    curve = list(zip(steps.tolist(), scores.tolist(), strict=True))
    assert curve_area(curve) == pytest.approx(integrate.trapezoid(scores, steps) / (steps[-1] - steps[0]))
    level = (scores[2] + 2 * scores[3]) / 3
    root = optimize.brentq(lambda step: np.interp(step, steps, scores) - level, steps[0], steps[-1])
    assert first_reaching(curve, level) == pytest.approx(root)


def test_the_first_time_counts_and_none_is_made_up():
    """0.2, 0.8, 0.4, 0.9: half way from 0.2 to 0.8 is step 0.5; it is lost again, and that changes nothing."""
    curve = [(0, 0.2), (1, 0.8), (2, 0.4), (3, 0.9)]
    assert first_reaching(curve, 0.5) == pytest.approx(0.5)
    assert first_reaching(curve, 0.85) == pytest.approx(2.9)
    assert first_reaching(curve, 0.95) is None
    assert first_reaching(curve, 0.1) == 0.0
    assert first_reaching([(1, 0.97)], 0.9) == 1.0  # of one epoch nothing is known before its end
    assert curve_area([(1, 0.97)]) == 0.97


def test_what_runs_log():
    """From 0.2 straight to 0.85 in one step: 0.5 is reached after 0.3 / 0.65 of it, 0.9 never."""
    logged = speed_metrics("test/accuracy", [(0, 0.2), (1, 0.85)], "steps")
    assert logged.pop(AREA) == pytest.approx(0.525)
    assert logged == {f"test/steps_to_{level}": pytest.approx((level - 20) / 65) for level in (50, 60, 70, 80)}
    names = speed_names("validation/dice", "epochs")
    assert {"validation/dice_area", "validation/epochs_to_50", "validation/epochs_to_99"} <= names
    assert all(is_speed(name) for name in names)
    assert {time_unit(name) for name in names} == {"", "epochs"}
    assert not any(map(is_speed, ("test/accuracy", "train/loss", "test/finetune_20", "test/accuracy_by_inner_step")))


def test_fewer_steps_are_better_and_tested_like_accuracies():
    """arelu less relu: -1.0, -1.2, -0.8, -1.1, -0.9 steps, and ten points of area for each."""
    relu, arelu = [3.0, 3.2, 2.8, 3.1, 2.9], [2.0, 2.0, 2.0, 2.0, 2.0]
    found = findings({"relu": relu, "arelu": arelu})
    steps, area = arms(found, STEPS)["arelu"], arms(found, AREA)["arelu"]
    wanted = stats.ttest_rel(arelu, relu)
    assert (steps.test.p, area.test.p) == pytest.approx((wanted.pvalue, wanted.pvalue))
    ends = wanted.confidence_interval()
    assert (steps.test.interval.low, steps.test.interval.high) == pytest.approx((ends.low, ends.high))
    assert steps.outcome is area.outcome is Outcome.DIFFERENT
    assert list(arms(found, STEPS)) == ["arelu", "relu"]  # best first
    assert (steps.best, arms(found, STEPS)["relu"].best) == (2.0, 2.8)
    assert steps.improvement.mean == area.improvement.mean == 100.0
    assert (steps.test.margin, area.test.margin) == (None, 3.0)  # points are no steps
    evidence = make_report(found).verdicts[0].evidence
    assert "arelu is detectably better than relu on test/steps_to_80: −1.00 steps" in evidence
    assert "arelu is detectably better than relu on test/accuracy_area: +10.00 points" in evidence


def test_a_run_that_never_gets_there_has_no_number():
    """It is counted, in no mean, and behind all that get there; where the better arm fails, nothing is decided."""
    never = math.nan
    found = findings({"relu": [3.0, 3.2, never, 3.1, never], "arelu": [2.0, 2.1, 2.0, 2.2, 2.1]})
    by_name = arms(found, STEPS)
    relu, arelu = by_name["relu"], by_name["arelu"]
    assert relu.failed == {2: NOT_REACHED, 4: NOT_REACHED}
    assert (relu.estimate.mean, relu.estimate.n) == (pytest.approx(3.1), 3)
    assert (arelu.difference.n, arelu.outcome) == (3, Outcome.DIFFERENT)  # only the slower arm fails
    assert (arelu.improvement.mean, arelu.improvement.n) == (100.0, 5)
    text = report_summary(make_report(found))
    assert "3 of 5" in next(line for line in text.split(STEPS + ", ")[1].splitlines() if line.startswith("  relu"))
    turned = findings({"relu": [3.0, 3.2, 2.9, 3.1, 3.3], "arelu": [2.0, 2.1, 2.0, never, never]})
    assert arms(turned, STEPS)["arelu"].outcome is Outcome.FAILING
    text = report_summary(make_report(turned))
    assert "some never do: 3 of 5 trainings of arelu and 5 of 5 of relu get there" in text
    assert arms(turned, AREA)["arelu"].outcome is not Outcome.FAILING


def test_what_failed_by_the_accuracy_fails_by_the_speed():
    """A slow arm has an area near chance and has learned; one at chance has not, whatever its area."""
    accuracy = {"relu": [80.0, 81.0, 82.0], "arelu": [85.0, 20.0, math.nan]}
    found = findings({"relu": [5.5, 5.6, 5.7], "arelu": [2.0, 2.1, 2.2]}, accuracy)
    by_name = arms(found, AREA)
    assert by_name["relu"].values.tolist() == pytest.approx([35.0, 34.0, 33.0])  # below 36, the limit of an accuracy
    assert by_name["arelu"].failed == {1: AT_CHANCE, 2: DIVERGED}


def test_runs_of_before_are_not_called_slow():
    """A run without an area did not measure its speed; one that diverged has nothing at all, and never got there."""
    runs = pd.DataFrame(
        {"seed": [0, 1, 2], "test/accuracy": [85.0, 85.0, math.nan], AREA: [60.0, math.nan, math.nan]},
    )
    kept = measured_runs(runs, STEPS)
    assert kept["seed"].tolist() == [0, 2]
    assert kept[STEPS].isna().all()
    assert measured_runs(runs.drop(columns=AREA), STEPS).empty
    old = findings({"relu": [3.0, 3.1], "arelu": [2.0, 2.2]})
    assert analyse(replace(old, runs=old.runs.drop(columns=[AREA, STEPS]))).speeds == ()


def test_tables_and_metrics_have_them():
    report = make_report(findings({"relu": [3.0, 3.2, 2.8], "arelu": [2.0, 2.1, 2.2]}))
    assert [table.title.split(",")[0] for table in report.primary_tables] == [
        "test/accuracy",
        "beyond the mean",
        AREA,
        STEPS,
    ]
    frame = numbers_frame(report.analysis)
    assert frame.groupby("metric").size().to_dict() == {"test/accuracy": 2, AREA: 2, STEPS: 2}
    assert report_metrics(report)["arelu/test/steps_to_80_mean"] == pytest.approx(2.1)
    assert any("not corrected over measures" in note for note in report.notes)


def test_no_interval_below_no_steps():
    """1, 1, 4 steps: Student's interval reaches below 0."""
    estimate = arms(findings({"relu": [1.0, 1.0, 4.0], "arelu": [0.5, 0.6, 0.7]}), STEPS)["relu"].estimate
    assert (estimate.low, estimate.cut) == (0.0, True)
