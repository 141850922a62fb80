import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from arelu_meta.analysis.arms import (
    ArmComparison,
    against_controls,
    analyse,
    count_better_and_worse,
    explained_arm,
    is_better,
)
from arelu_meta.analysis.estimates import paired_difference
from tests.reporting.sweeps import CONTROLS, TRUTH, sweep


def one(findings) -> ArmComparison:
    analysis = analyse(findings)
    assert len(analysis.primary) == 1
    return analysis.primary[0]


def test_a_whole_table_against_scipy_and_statsmodels():
    findings = sweep(seeds=range(8))
    comparison = one(findings)
    table = findings.runs.pivot(index="seed", columns="activation", values="test/accuracy")
    others = [name for name in TRUTH if name != "relu"]
    raw = [stats.ttest_rel(table[name], table["relu"]).pvalue for name in others]
    corrected = dict(zip(others, multipletests(raw, method="holm")[1], strict=True))
    assert {arm.name for arm in comparison.tested} == set(others)
    for name in others:
        arm = comparison.arm(name)
        assert arm.p_holm == pytest.approx(corrected[name], rel=1e-9)
        assert arm.estimate.mean == pytest.approx(table[name].mean())
        assert arm.sd == pytest.approx(table[name].std())
        spread = (table[name] - table["relu"]).std()
        detectable = spread * TTestPower().solve_power(nobs=8, alpha=0.05 / 6, power=0.8)
        assert arm.detectable == pytest.approx(detectable, rel=1e-4)
    assert comparison.arm("relu").difference is None
    assert [arm.estimate.mean for arm in comparison.arms] == pytest.approx(sorted(table.mean(), reverse=True))


def test_lower_is_better():
    means = [arm.estimate.mean for arm in one(sweep(higher_is_better=False)).arms]
    assert means == sorted(means)


def test_arms_with_missing_and_lost_seeds():
    findings = sweep({"relu": 60.0, "arelu": 70.0, "elu": 65.0, "pau": 50.0})
    runs = findings.runs
    runs = runs[~((runs["activation"] == "arelu") & (runs["seed"] == 2))]
    runs.loc[(runs["activation"] == "elu") & (runs["seed"] == 4), "test/accuracy"] = math.nan
    runs.loc[runs["activation"] == "pau", "test/accuracy"] = math.inf
    comparison = one(replace(findings, runs=runs))
    assert comparison.arm("arelu").difference.differences.index.tolist() == [0, 1, 3, 4]
    assert comparison.arm("elu").diverged == (4,)
    assert comparison.arm("elu").estimate.n == 4
    assert comparison.arms[-1].name == "pau"  # without a number, at the end
    assert comparison.arm("pau").diverged == (0, 1, 2, 3, 4)
    assert len(comparison.tested) == 2


def test_without_a_baseline_nothing_is_tested():
    comparison = one(sweep({"arelu": 60.0, "elu": 61.0}))
    assert comparison.tested == ()
    assert all(arm.difference is None for arm in comparison.arms)


def test_no_runs():
    analysis = analyse(replace(sweep(), runs=pd.DataFrame()))
    assert analysis.primary == ()


def test_learning_rates_matched_beside_fixed():
    """All arms are equally good at their own best rate; at 0.01 relu is one decade off and loses 8 points."""
    arms = {"relu": 70.0, "arelu": 70.0}
    findings = sweep(
        arms, lrs=(0.001, 0.01, 0.1, 1.0), best_lr={"relu": 0.1, "arelu": 0.01}, arm_sd=0.3, seeds=range(10)
    )
    analysis = analyse(findings)
    assert [comparison.label for comparison in analysis.fixed] == ["lr = 0.001", "lr = 0.01", "lr = 0.1", "lr = 1"]
    (matched,) = analysis.matched
    assert analysis.primary == (matched,)
    assert matched.label == "each arm at its best lr"
    assert dict(matched.arm("relu").setting) == {"lr": 0.1}
    assert dict(matched.arm("arelu").setting) == {"lr": 0.01}
    assert abs(matched.arm("arelu").difference.estimate.mean) < 1
    fixed = analysis.fixed[1].arm("arelu")
    assert fixed.difference.estimate.mean == pytest.approx(8, abs=1)
    assert fixed.differs


@pytest.mark.parametrize("metric", [None, "validation/absent"])
def test_without_validation_no_rate_is_chosen(metric: str | None):
    analysis = analyse(sweep(lrs=(0.01, 0.1), validation_metric=metric))
    assert analysis.matched == ()
    assert len(analysis.primary) == 2


def test_settings_that_nobody_tunes_are_compared_one_by_one():
    findings = sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.01, 0.1))
    both = pd.concat([findings.runs.assign(shots=1), findings.runs.assign(shots=5)])
    analysis = analyse(replace(findings, runs=both, axes=("activation", "shots", "lr")))
    assert [comparison.label for comparison in analysis.matched] == [
        "shots = 1; each arm at its best lr",
        "shots = 5; each arm at its best lr",
    ]
    assert len(analysis.fixed) == 4


def test_published_values_of_the_setting():
    published = pd.DataFrame(
        {
            "activation": ["arelu", "arelu", "relu"],
            "lr": ["1e-2", "1e-1", np.nan],
            "metric": "m",
            "value": [1.0, 2.0, 3.0],
        }
    )
    at_hundredth = analyse(sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.01, 0.1), published=published)).fixed[0]
    assert at_hundredth.arm("arelu").published == {("m", "", ""): 1.0}
    assert at_hundredth.arm("relu").published == {("m", "", ""): 3.0}  # an empty axis fits any


def test_episodes_reach_the_arms():
    arm = one(sweep(episodes=50)).arm("arelu")
    assert arm.episodes.together.n == 50
    assert arm.episodes.together.mean == pytest.approx(arm.difference.estimate.mean)
    assert sorted(arm.episodes.by_seed) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arms", "explained", "found"),
    [
        (("relu", "arelu", "elu"), None, "arelu"),
        (("relu", "elu", "arelu_unit"), None, "elu"),  # the only one that is neither baseline nor control
        (("relu", "elu", "celu"), None, None),
        (("relu", "arelu", "elu"), "elu", "elu"),
        (("relu", "arelu"), "elu", None),  # named, but no run of it finished
        (("relu",), None, None),
    ],
)
def test_explained_arm(arms: tuple[str, ...], explained: str | None, found: str | None):
    findings = sweep(dict.fromkeys(arms, 60.0), explained=explained)
    assert explained_arm(findings, analyse(findings).primary[0]) == found


def test_against_scipy_and_statsmodels():
    findings = sweep(seeds=range(6))
    controls = against_controls(findings, analyse(findings).primary[0])
    table = findings.runs.pivot(index="seed", columns="activation", values="test/accuracy")
    raw = [stats.ttest_rel(table["arelu"], table[name]).pvalue for name in CONTROLS]
    assert [control.arm for control in controls] == list(CONTROLS)
    assert [control.lacks for control in controls] == list(CONTROLS.values())
    assert [control.p_holm for control in controls] == pytest.approx(multipletests(raw, method="holm")[1], rel=1e-9)


def test_controls_that_cannot_be_tested():
    findings = sweep({"relu": 60.0, "arelu": 70.0, "arelu_unit": 60.0}, seeds=[0])
    assert against_controls(findings, analyse(findings).primary[0]) == []


@pytest.mark.parametrize("higher", [True, False])
def test_a_difference(higher: bool):
    findings = sweep({"relu": 60.0, "arelu": 75.0}, higher_is_better=higher)
    more = paired_difference(pd.Series([2.0, 3.0]), pd.Series([1.0, 1.0]))
    assert is_better(findings, more) is higher


@pytest.mark.parametrize(("higher", "counts"), [(True, (2, 1)), (False, (1, 2))])
def test_arms_that_cannot_be_told_apart_do_not_count(higher: bool, counts: tuple[int, int]):
    truth = {"relu": 60.0, "same": 60.0, "elu": 80.0, "celu": 80.0, "pau": 40.0}
    findings = sweep(truth, arm_sd=0.5, higher_is_better=higher)
    (comparison,) = analyse(findings).primary
    assert count_better_and_worse(findings, comparison.arms) == counts


def test_the_whole_analysis_finds_what_is_there_and_nothing_else():
    """25 sweeps through `analyse`: 16 points are always found; arms without a difference in at most 5 % + luck."""
    false, found = 0, 0
    for number in range(25):
        truth = {"relu": 66.0, "same": 66.0, "alike": 66.0, "arelu": 82.0}
        (comparison,) = analyse(sweep(truth, arm_sd=1.5, random_seed=number)).primary
        false += comparison.arm("same").differs or comparison.arm("alike").differs
        found += comparison.arm("arelu").differs
    assert found == 25
    assert false <= 5  # more than 5 of 25 has a chance of 0.1 % at a rate of 5 %


def test_sweeps_are_what_they_say():
    """The generator itself: with no luck every run has the truth of its arm."""
    runs = sweep({"relu": 60.0, "arelu": 75.0}, seed_sd=0, arm_sd=0).runs
    expected = pd.Series({"arelu": 75.0, "relu": 60.0})
    assert runs.groupby("activation")["test/accuracy"].mean().to_dict() == expected.to_dict()
