# ruff: noqa: RUF001
"""Words follow numbers: each verdict is built from a sweep whose truth is known, and quotes what scipy gives for it."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from scipy import stats

from arelu_meta.reporting import markdown
from arelu_meta.reporting.content import content
from arelu_meta.reporting.findings import Findings
from tests.reporting.sweeps import sweep


def verdict(findings: Findings) -> str:
    ((_, text),) = content(findings).verdicts
    return text


def test_a_difference_with_its_numbers():
    findings = sweep({"relu": 60.0, "arelu": 75.0})
    table = findings.runs.pivot(index="seed", columns="activation", values="test/accuracy")
    reference = stats.ttest_rel(table["arelu"], table["relu"])
    interval = reference.confidence_interval()
    text = verdict(findings)
    mean = (table["arelu"] - table["relu"]).mean()
    assert text.startswith(
        f"arelu is detectably better than relu on test/accuracy (+{mean:.2f} points, "
        f"95 % interval +{interval.low:.2f} to +{interval.high:.2f}, p < 0.001 by the paired t test; "
        "n = 5 seeds, protocol sound)."
    )
    assert reference.pvalue < 0.001
    assert text.count(". ") == 1  # two sentences


def test_no_difference():
    text = verdict(sweep({"relu": 60.0, "arelu": 60.0}, random_seed=1))
    assert text.startswith("There is no detectable difference between arelu and relu on test/accuracy (")
    assert "would have been detected with 80 % power; smaller ones may be there." in text


def test_worse_and_lower_is_better():
    assert "arelu is detectably worse than relu" in verdict(sweep({"relu": 75.0, "arelu": 60.0}))
    assert "arelu is detectably better than relu" in verdict(
        sweep({"relu": 75.0, "arelu": 60.0}, higher_is_better=False)
    )


def test_controls_decide_what_it_is():
    gain = {"relu": 60.0, "arelu": 80.0, "arelu_frozen": 80.0, "relu_gain": 80.0, "arelu_unit": 60.0}
    text = verdict(sweep(gain))
    first, second = text.split(". Against its controls, ")
    assert "of 3 arms beside it, 2 are detectably better and 0 worse" in first
    assert second.startswith("arelu is detectably better than arelu_unit (which lacks gain: +")
    assert "and not detectably different from arelu_frozen (which lacks learning:" in second
    assert second.endswith(
        ": without gain it is worse; without learning, or without shape and learning, no difference is detectable."
    )


def test_no_advantage_nothing_to_explain():
    flat = dict.fromkeys(("relu", "arelu", "arelu_frozen", "arelu_unit"), 60.0)
    text = verdict(sweep(flat, random_seed=3))
    assert "Against its controls, arelu is not detectably different from" in text
    assert "without" not in text


def test_a_control_that_is_better():
    text = verdict(sweep({"relu": 60.0, "arelu": 70.0, "arelu_frozen": 80.0}, arm_sd=0.5))
    assert "Against its controls, arelu is detectably worse than arelu_frozen" in text


def test_without_an_arm_to_explain_arms_are_counted():
    arms = {"relu": 60.0, "elu": 75.0, "celu": 60.0, "pau": 45.0}
    text = verdict(sweep(arms, arm_sd=0.5))
    assert text.startswith("Of 3 arms, 1 is detectably better than relu on test/accuracy and 1 worse, elu furthest (+1")
    none = verdict(sweep(dict.fromkeys(arms, 60.0), random_seed=2))
    assert none.startswith("There is no detectable difference: of 3 arms none differs from relu")
    worse = verdict(sweep({"relu": 60.0, "elu": 50.0, "pau": 40.0}, arm_sd=0.5))
    assert "0 are detectably better than relu on test/accuracy and 2 worse, pau furthest (−2" in worse


def test_budget_and_setting_are_named():
    text = verdict(sweep({"relu": 60.0, "arelu": 75.0}, lrs=(0.01, 0.1), budget=0.1))
    assert "each arm at its best lr, n = 5 seeds, protocol sound, only 10 % of the full training" in text


def test_one_seed():
    text = verdict(sweep({"relu": 60.0, "arelu": 75.0}, seeds=[0]))
    assert text.startswith(
        "A single seed cannot tell a difference to relu from chance; the best mean is that of arelu,"
    )
    assert "n = 1 seed, protocol sound" in text


def test_constant_differences():
    text = verdict(sweep({"relu": 60.0, "arelu": 75.0}, arm_sd=0.0))
    assert text.startswith(
        "Differences to relu do not vary over seeds and cannot be tested; the best mean is that of arelu"
    )


def test_identical_results():
    text = verdict(sweep({"relu": 60.0, "arelu": 60.0}, arm_sd=0.0))
    assert text.startswith("There is no detectable difference between arelu and relu on test/accuracy (+0.00 points")
    assert text.endswith("What the design could have detected cannot be said: the differences do not vary.")


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ({"relu": 60.0}, "relu is the only arm with a result"),
        ({"arelu": 60.0, "elu": 50.0}, "no run of the baseline relu has a result"),
    ],
)
def test_nothing_to_compare(arms: dict[str, float], words: str):
    assert verdict(sweep(arms)).startswith(f"Nothing can be compared: {words}.")


def test_a_baseline_that_diverged_everywhere():
    findings = sweep({"relu": math.nan, "arelu": 60.0})
    assert verdict(findings).startswith("Nothing can be compared: no run of the baseline relu has a result.")


def test_no_runs():
    assert verdict(replace(sweep(), runs=pd.DataFrame())) == "Nothing can be compared: no run has finished."


def test_several_settings_have_a_verdict_each():
    findings = sweep({"relu": 60.0, "arelu": 75.0})
    both = pd.concat([findings.runs.assign(shots=1), findings.runs.assign(shots=5)])
    said = content(replace(findings, runs=both, axes=("activation", "shots")))
    assert [title for title, _ in said.verdicts] == ["shots = 1", "shots = 5"]


def test_a_choice_at_the_edge_is_part_of_the_verdict():
    """Whoever chose the largest rate offered might have done better with a larger one: no verdict without that."""
    arms, rates = {"relu": 60.0, "arelu": 75.0}, (0.001, 0.01, 0.1)
    inside = verdict(sweep(arms, lrs=rates, best_lr={"relu": 0.01, "arelu": 0.01}, arm_sd=0.3))
    assert "edge" not in inside
    one = verdict(sweep(arms, lrs=rates, best_lr={"relu": 0.1, "arelu": 0.01}, arm_sd=0.3))
    assert ", but relu (lr = 0.1) is best at the edge of what was tried: a wider grid may decide otherwise)." in one
    both = verdict(sweep(arms, lrs=rates, best_lr={"relu": 0.1, "arelu": 0.001}, arm_sd=0.3))
    assert ", but relu (lr = 0.1) and arelu (lr = 0.001) are best at the edge of what was tried" in both
    assert both.count(". ") == 1  # still two sentences


def test_a_single_setting_is_no_choice():
    """Several rates under one optimizer, one under the other: what was not chosen is not called chosen."""
    arms = {"relu": 60.0, "arelu": 75.0}
    wide, narrow = sweep(arms, lrs=(0.001, 0.01, 0.1), arm_sd=0.3), sweep(arms, lrs=(0.01,), arm_sd=0.3)
    runs = pd.concat([wide.runs.assign(optimizer="sgd"), narrow.runs.assign(optimizer="adam")], ignore_index=True)
    said = dict(content(replace(wide, runs=runs, axes=("activation", "optimizer", "lr"))).verdicts)
    texts = {key.split(";")[0]: text for key, text in said.items()}
    assert "no other setting" not in texts["optimizer = sgd"]
    assert ", but relu and arelu had no other setting to choose)." in texts["optimizer = adam"]


def test_an_arm_that_diverged_at_every_setting_is_still_the_one_explained():
    arms = {"relu": 60.0, "arelu": math.nan, "arelu_frozen": 70.0, "elu": 65.0}
    findings = sweep(arms, lrs=(0.001, 0.01, 0.1), arm_sd=0.3)
    text = verdict(findings)
    assert "Against its controls, elu" not in text
    assert text.startswith("Of 2 arms, 2 are detectably better than relu")
    assert "| arelu |  | none | – | 0 |" in markdown.markdown(content(findings), {})


def test_a_setting_in_which_everything_diverged_is_named():
    wide = sweep({"relu": 60.0, "arelu": 75.0}, lrs=(0.001, 0.01, 0.1), arm_sd=0.3)
    lost = wide.runs.assign(optimizer="adam", **{"test/accuracy": math.nan, "validation/accuracy": math.nan})
    runs = pd.concat([wide.runs.assign(optimizer="sgd"), lost], ignore_index=True)
    said = content(replace(wide, runs=runs, axes=("activation", "optimizer", "lr"))).verdicts
    texts = {key.split(";")[0]: text for key, text in said}
    assert texts["optimizer = adam"].startswith("Nothing can be compared: no run of the baseline relu has a result.")


def test_the_only_other_arm_diverged():
    text = verdict(sweep({"relu": 60.0, "arelu": math.nan}))
    assert text.startswith("Nothing can be compared: relu is the only arm with a result.")
