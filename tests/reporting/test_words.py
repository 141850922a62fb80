# ruff: noqa: RUF001
"""Words follow numbers: each verdict is built from a sweep whose truth is known, and quotes what scipy gives for it."""

import math
import re
from dataclasses import replace

import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.content import make_report
from arelu_meta.reporting.markdown import markdown_report
from arelu_meta.reporting.numbers import p_text
from tests.reporting.sweeps import sweep


def sentences(findings: Findings) -> str:
    (one,) = make_report(findings).verdicts
    assert len(re.findall(r"\. |\.$", one.sentences)) <= 2
    return one.sentences


def evidence(findings: Findings) -> str:
    (one,) = make_report(findings).verdicts
    return one.evidence


def test_a_difference_with_its_numbers():
    findings = sweep({"relu": 60.0, "arelu": 75.0})
    table = findings.runs.pivot(index="seed", columns="activation", values="test/accuracy")
    reference = stats.ttest_rel(table["arelu"], table["relu"])
    interval = reference.confidence_interval()
    mean = (table["arelu"] - table["relu"]).mean()
    assert sentences(findings).startswith(
        f"arelu is detectably better than relu on test/accuracy: +{mean:.2f} points, "
        f"95 % interval +{interval.low:.2f} to +{interval.high:.2f}."
    )
    assert reference.pvalue < 0.001
    assert evidence(findings) == "The paired t test gives p < 0.001 (n = 5 seeds, protocol sound)."


def test_no_difference():
    arms = {"relu": 60.0, "arelu": 60.0}
    text = sentences(sweep(arms, random_seed=1))
    assert text.startswith("Undecided whether arelu differs from relu on test/accuracy: ")
    assert text.endswith(" No margin is declared, so that the two cannot be called equivalent.")


def test_how_many_seeds_are_lacking():
    findings = sweep({"relu": 60.0, "arelu": 60.0}, random_seed=1, margin=0.5)
    table = findings.runs.pivot(index="seed", columns="activation", values="test/accuracy")
    effect = 0.5 / (table["arelu"] - table["relu"]).std()
    needed = math.ceil(TTestPower().solve_power(effect_size=effect, alpha=0.05, power=0.8))
    words = f"About {needed - 5} further seeds would be needed to find a difference of 0.5 points with 80 % power."
    assert sentences(findings).endswith(words)


def test_equivalence_with_its_numbers():
    """The interval is that of the two one-sided tests: 90 %, and it lies within the margin."""
    findings = sweep({"relu": 60.0, "arelu": 60.0}, random_seed=1, margin=5.0)
    table = findings.runs.pivot(index="seed", columns="activation", values="test/accuracy")
    interval = stats.ttest_rel(table["arelu"], table["relu"]).confidence_interval(0.9)
    text = sentences(findings).replace("−", "-")
    assert text.startswith("arelu and relu are equivalent within 5 points on test/accuracy: ")
    assert text.endswith(f"90 % interval {interval.low:+.2f} to {interval.high:+.2f}.")
    p = ttost_paired(table["arelu"], table["relu"], -5, 5)[0]
    assert 0.0001 < p < 0.05
    assert f"; two one-sided tests against the margin give {p_text(p)} (" in evidence(findings)


def test_a_difference_smaller_than_the_margin():
    text = sentences(sweep({"relu": 60.0, "arelu": 60.5}, arm_sd=0.05, margin=1.0))
    assert text.startswith("arelu is detectably better than relu")
    assert text.endswith(", which is within the margin of 1 point.")


def test_trainings_that_fail():
    """Of arelu's five trainings two end at chance: the three others differ, and the verdict says what it cannot."""
    findings = sweep({"relu": 60.0, "arelu": 80.0}, chance=20.0, arm_sd=0.5)
    runs = findings.runs.copy()
    runs.loc[(runs["activation"] == "arelu") & (runs["seed"] < 2), "test/accuracy"] = 20.0
    text = sentences(replace(findings, runs=runs))
    assert text.startswith(
        "Undecided, because trainings fail: 3 of 5 trainings of arelu and 5 of 5 of relu learned, "
        "and these differ on test/accuracy by +"
    )


def test_what_becomes_of_an_advantage():
    """At 0.001 relu is two decades off and loses 32 points, arelu one and 8; at their own rates they are equal."""
    best = {"relu": 0.1, "arelu": 0.01}
    found = evidence(sweep({"relu": 70.0, "arelu": 70.0}, lrs=(0.001, 0.01, 0.1), best_lr=best, arm_sd=0.3))
    words = r" From \+2[34]\.\d\d points over relu at lr = 0\.001 to [+−]0\.\d\d points at own settings, arelu's lead "
    assert re.search(
        words + r"changes by \+2[34]\.\d\d points, 95 % interval \+2\d\.\d\d to \+2\d\.\d\d \(p < 0\.001\)\.", found
    )
    stays = evidence(sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.001, 0.01, 0.1), arm_sd=0.3))
    assert "arelu's lead does not change detectably: " in stays


def test_the_primary_comparison_is_called_so():
    arms = {"relu": 60.0, "arelu": 75.0, "elu": 61.0, "celu": 62.0}
    assert "p < 0.001, as the primary comparison not corrected (" in evidence(sweep(arms, primary="arelu"))
    assert ", 95 % interval +" in sentences(sweep(arms, primary="arelu"))
    assert "p < 0.001, corrected over 3 arms (" in evidence(sweep(arms))
    assert ", simultaneous 95 % interval +" in sentences(sweep(arms))


def test_worse_and_lower_is_better():
    assert "arelu is detectably worse than relu" in sentences(sweep({"relu": 75.0, "arelu": 60.0}))
    assert "arelu is detectably better than relu" in sentences(
        sweep({"relu": 75.0, "arelu": 60.0}, higher_is_better=False)
    )


def test_controls_decide_what_it_is():
    gain = {"relu": 60.0, "arelu": 80.0, "arelu_frozen": 80.0, "relu_gain": 80.0, "arelu_unit": 60.0}
    assert sentences(sweep(gain)).endswith(
        ". Without gain it is worse; without learning, or without shape and learning, no difference is detectable."
    )
    words = r"Of 3 arms beside arelu, 2 are detectably better than relu \((\w+) and (\w+)\) and 0 worse\."
    assert sorted(re.search(words, evidence(sweep(gain))).groups()) == ["arelu_frozen", "relu_gain"]


SQUAREPLUS = "mymod:Squareplus"


def test_the_verdict_is_about_the_arm_that_is_named():
    """arelu is as good as relu and squareplus ten points worse; the first sentence is about the one that is named."""
    arms = {"relu": 60.0, "arelu": 60.0, SQUAREPLUS: 50.0}
    named = sweep(arms, arm_sd=0.5, explained=SQUAREPLUS, controls={})
    assert sentences(named).startswith(f"{SQUAREPLUS} is detectably worse than relu on test/accuracy: −")
    assert "Of 1 arm beside mymod:Squareplus, 0 are detectably better than relu and 0 worse." in evidence(named)
    default = sweep(arms, arm_sd=0.5, controls={})
    assert sentences(default).startswith("Undecided whether arelu differs from relu on test/accuracy")
    assert f"Of 1 arm beside arelu, 0 are detectably better than relu and 1 worse ({SQUAREPLUS})." in evidence(default)


def test_many_arms_are_counted_and_not_named():
    many = {"relu": 60.0, "arelu": 60.0, "a": 80.0, "b": 80.0, "c": 80.0, "d": 80.0, "e": 40.0, "f": 40.0}
    found = evidence(sweep(many, arm_sd=0.3, controls={}))
    words = "Of 6 arms beside arelu, 4 are detectably better than relu and 2 worse ("
    assert found.partition(words)[2].startswith(("e and f)", "f and e)"))


def test_no_advantage_nothing_to_explain():
    flat = dict.fromkeys(("relu", "arelu", "arelu_frozen", "arelu_unit"), 60.0)
    findings = sweep(flat, random_seed=3)
    assert sentences(findings).endswith(". None of its controls differs detectably from arelu.")
    assert " No margin is declared, so that the two cannot be called equivalent." in evidence(findings)
    wide = sweep(flat, random_seed=3, margin=20.0)
    assert sentences(wide).endswith(". Of its controls, arelu_frozen and arelu_unit are equivalent.")


def test_a_control_that_is_better():
    ahead = {"relu": 60.0, "arelu": 70.0, "arelu_frozen": 80.0}
    assert sentences(sweep(ahead, arm_sd=0.5)).endswith(". Without learning it is better.")
    level = {"relu": 60.0, "arelu": 60.0, "arelu_frozen": 80.0, "arelu_unit": 60.0, "relu_gain": 40.0}
    assert sentences(sweep(level, arm_sd=0.5)).endswith(
        ". Of its controls, arelu_frozen is detectably better; relu_gain is detectably worse; "
        "arelu_unit is not detectably different."
    )


def test_without_an_arm_to_explain_arms_are_counted():
    arms = {"relu": 60.0, "elu": 75.0, "celu": 60.0, "pau": 45.0}
    text = sentences(sweep(arms, arm_sd=0.5))
    assert text.startswith(
        "Of 3 arms, 1 is detectably better than relu on test/accuracy and 1 worse; the best is elu: +1"
    )
    assert evidence(sweep(arms, arm_sd=0.5)).startswith("The paired t test gives p < 0.001 for elu, corrected over 3")
    none = sweep(dict.fromkeys(arms, 60.0), random_seed=2)
    assert sentences(none).startswith("No difference is detectable: of 3 arms none differs from relu")
    assert evidence(none).startswith("The paired t test gives no p below 0.05, corrected over 3 arms (n = 5 seeds")
    worse = sentences(sweep({"relu": 60.0, "elu": 50.0, "pau": 40.0}, arm_sd=0.5))
    assert "0 are detectably better than relu on test/accuracy and 2 worse; the worst is pau: −2" in worse


def test_one_seed():
    findings = sweep({"relu": 60.0, "arelu": 75.0}, seeds=[0])
    assert sentences(findings).startswith(
        "A single seed cannot tell a difference to relu from chance. The best mean is that of arelu,"
    )
    assert evidence(findings) == "test/accuracy: n = 1 seed, protocol sound."


def test_no_seed_is_shared():
    findings = sweep({"relu": 60.0, "arelu": 75.0})
    runs = findings.runs.assign(seed=findings.runs["seed"] + 10 * (findings.runs["activation"] == "arelu"))
    assert sentences(replace(findings, runs=runs)).startswith(
        "No arm shares a seed with relu, so that nothing can be compared in pairs. The best mean is that of arelu,"
    )


def test_constant_differences():
    text = sentences(sweep({"relu": 60.0, "arelu": 75.0}, arm_sd=0.0))
    assert text.startswith(
        "Differences to relu do not vary over seeds and cannot be tested. The best mean is that of arelu"
    )


def test_identical_results():
    text = sentences(sweep({"relu": 60.0, "arelu": 60.0}, arm_sd=0.0))
    assert text == "arelu and relu gave identical results on test/accuracy in all 5 seeds."


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ({"relu": 60.0}, "relu is the only arm with a result"),
        ({"arelu": 60.0, "elu": 50.0}, "no run of the baseline relu has a result"),
    ],
)
def test_nothing_to_compare(arms: dict[str, float], words: str):
    assert sentences(sweep(arms)).startswith(f"Nothing can be compared: {words}.")


def test_a_baseline_that_diverged_everywhere():
    findings = sweep({"relu": math.nan, "arelu": 60.0})
    assert sentences(findings).startswith("Nothing can be compared: no run of the baseline relu has a result.")


def test_no_runs():
    assert sentences(replace(sweep(), runs=pd.DataFrame())) == "Nothing can be compared: no run has finished."


def test_several_settings_have_a_verdict_each():
    findings = sweep({"relu": 60.0, "arelu": 75.0})
    both = pd.concat([findings.runs.assign(shots=1), findings.runs.assign(shots=5)])
    report = make_report(replace(findings, runs=both, axes=("activation", "shots")))
    assert [one.about for one in report.verdicts] == ["shots = 1", "shots = 5"]


def test_an_arm_that_diverged_at_every_setting_is_still_the_one_explained():
    arms = {"relu": 60.0, "arelu": math.nan, "arelu_frozen": 70.0, "elu": 65.0}
    findings = sweep(arms, lrs=(0.001, 0.01, 0.1), arm_sd=0.3)
    text = sentences(findings)
    assert "controls" not in text
    assert text.startswith("Of 2 arms, 2 are detectably better than relu")
    assert "| arelu |  | none | – | 0 of 5 | 0 |" in markdown_report(make_report(findings), {})


def test_a_setting_in_which_everything_diverged_is_named():
    wide = sweep({"relu": 60.0, "arelu": 75.0}, lrs=(0.001, 0.01, 0.1), arm_sd=0.3)
    lost = wide.runs.assign(optimizer="adam", **{"test/accuracy": math.nan, "validation/accuracy": math.nan})
    runs = pd.concat([wide.runs.assign(optimizer="sgd"), lost], ignore_index=True)
    report = make_report(replace(wide, runs=runs, axes=("activation", "optimizer", "lr"))).verdicts
    texts = {one.about.split(";")[0]: one.sentences for one in report}
    assert texts["optimizer = adam"].startswith("Nothing can be compared: no run of the baseline relu has a result.")


def test_the_only_other_arm_diverged():
    text = sentences(sweep({"relu": 60.0, "arelu": math.nan}))
    assert text.startswith("Nothing can be compared: relu is the only arm with a result.")


def test_budget_and_setting_are_named():
    text = evidence(sweep({"relu": 60.0, "arelu": 75.0}, lrs=(0.01, 0.1), budget=0.1))
    assert "(each arm at its best lr, n = 5 seeds, protocol sound, only 10 % of the full training" in text


def test_a_choice_at_the_edge_is_part_of_the_verdict():
    """Whoever chose the largest rate offered might have done better with a larger one: no verdict without that."""
    arms, rates = {"relu": 60.0, "arelu": 75.0}, (0.001, 0.01, 0.1)
    inside = evidence(sweep(arms, lrs=rates, best_lr={"relu": 0.01, "arelu": 0.01}, arm_sd=0.3))
    assert "edge" not in inside
    one = evidence(sweep(arms, lrs=rates, best_lr={"relu": 0.1, "arelu": 0.01}, arm_sd=0.3))
    assert " But relu (lr = 0.1) is best at the edge of what was tried: a wider grid may decide otherwise." in one
    both = evidence(sweep(arms, lrs=rates, best_lr={"relu": 0.1, "arelu": 0.001}, arm_sd=0.3))
    assert " But relu (lr = 0.1) and arelu (lr = 0.001) are best at the edge of what was tried" in both


def test_a_single_setting_is_no_choice():
    """Several rates under one optimizer, one under the other: what was not chosen is not called chosen."""
    arms = {"relu": 60.0, "arelu": 75.0}
    wide, narrow = sweep(arms, lrs=(0.001, 0.01, 0.1), arm_sd=0.3), sweep(arms, lrs=(0.01,), arm_sd=0.3)
    runs = pd.concat([wide.runs.assign(optimizer="sgd"), narrow.runs.assign(optimizer="adam")], ignore_index=True)
    report = make_report(replace(wide, runs=runs, axes=("activation", "optimizer", "lr"))).verdicts
    texts = {one.about.split(";")[0]: one.evidence for one in report}
    assert "no other setting" not in texts["optimizer = sgd"]
    assert " But relu and arelu had no other setting to choose." in texts["optimizer = adam"]


def test_a_design_that_could_find_nothing():
    findings = sweep({"relu": 60.0, "arelu": 50.0}, seeds=[0, 1], arm_sd=30.0, margin=0.01)
    assert sentences(findings).endswith(" More than 10,000 seeds would be needed to find a difference of 0.01 points.")


def test_a_declared_arm_without_a_result_is_named_first():
    runs = sweep({"relu": 60.0, "arelu": 70.0, "elu": 80.0}).runs.copy()
    runs.loc[runs["activation"] == "arelu", "test/accuracy"] = math.nan
    report = make_report(sweep({"relu": 60.0, "arelu": 70.0, "elu": 80.0}, runs=runs, primary="arelu"))
    assert report.verdicts[0].sentences.startswith("No training of arelu can be compared. Of 1 arm, 1 is detectably")


def test_the_best_is_one_that_is_better():
    """gelu has the highest mean, by seeds that are high for all, and is 2 points below relu on the seeds they share."""
    relu = {0: 60.0, 1: 61.0, 2: 62.0, 3: 90.0, 4: 91.0, 5: 92.0}
    arms = {
        "relu": relu,
        "elu": {seed: relu[seed] + 5 + 0.1 * seed for seed in (0, 1, 2)},
        "gelu": {seed: relu[seed] - 2 - 0.1 * seed for seed in (3, 4, 5)},
    }
    rows = [
        {"activation": name, "seed": seed, "test/accuracy": value}
        for name, values in arms.items()
        for seed, value in values.items()
    ]
    report = make_report(sweep({"relu": 60.0}, runs=pd.DataFrame(rows), primary=None, controls={}))
    assert "1 is detectably better than relu on test/accuracy and 1 worse; the best is elu: +5.1" in (
        report.verdicts[0].sentences
    )


def test_the_change_is_that_of_the_smallest_rate():
    """At 0.1, which both choose, nothing changes; at 0.01 the lead is ten points more."""
    rows = [
        {
            "activation": name,
            "lr": lr,
            "seed": seed,
            "test/accuracy": value + 0.3 * seed * (name == "arelu"),
            "validation/accuracy": value,
        }
        for lr, own in ((0.1, {"relu": 80.0, "arelu": 82.0}), (0.01, {"relu": 50.0, "arelu": 62.0}))
        for name, value in own.items()
        for seed in range(4)
    ]
    runs = pd.DataFrame(rows)
    runs.loc[(runs["lr"] == 0.01) & (runs["activation"] == "arelu"), "test/accuracy"] += [0.5, -0.4, 0.2, 0.1]
    report = make_report(
        sweep({"relu": 1.0}, runs=runs, axes=("activation", "lr"), validation_metric="validation/accuracy", controls={})
    )
    assert "over relu at lr = 0.01" in report.verdicts[0].evidence
