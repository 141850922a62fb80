import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from arelu_meta.analysis.arms import ArmComparison, analyse, count_better_and_worse, is_better
from arelu_meta.analysis.decisions import Outcome
from arelu_meta.analysis.estimates import paired_difference
from tests.reporting.sweeps import TRUTH, sweep


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
    corrected = dict(zip(others, multipletests(raw, method="bonferroni")[1], strict=True))
    assert {arm.name for arm in comparison.tested} == set(others)
    for name in others:
        arm = comparison.arm(name)
        assert arm.test.p == pytest.approx(corrected[name], rel=1e-9)
        assert arm.estimate.mean == pytest.approx(table[name].mean())
        assert arm.sd == pytest.approx(table[name].std())
        interval = stats.ttest_rel(table[name], table["relu"]).confidence_interval(1 - 0.05 / 6)
        assert (arm.test.interval.low, arm.test.interval.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert comparison.arm("relu").difference is None
    assert [arm.estimate.mean for arm in comparison.arms] == pytest.approx(sorted(table.mean(), reverse=True))


def test_the_primary_comparison_is_not_corrected():
    """The others are five: six arms beside the baseline less the primary one."""
    comparison = one(sweep(seeds=range(6), primary="arelu"))
    families = {arm.name: arm.test.family for arm in comparison.arms if arm.test}
    assert families == {name: 1 if name == "arelu" else 5 for name in TRUTH if name != "relu"}
    arm = comparison.arm("arelu")
    assert arm.test.p == arm.difference.p_t
    assert comparison.family == 5


MAML = {  # five seeds of maml_mnist 1-shot, of which two of AReLU collapsed
    "relu": (61.0, 73.9, 64.6, 66.9, 73.9),
    "arelu": (47.2, 84.7, 85.5, 87.6, 37.0),
    "relu_gain": (20.0, 21.0, 19.5, 20.5, 20.0),
}


def collapsed(**fields) -> ArmComparison:
    rows = [
        {"activation": name, "seed": seed, "test/accuracy": value}
        for name, values in MAML.items()
        for seed, value in enumerate(values)
    ]
    return one(sweep({"relu": 1.0}, runs=pd.DataFrame(rows), **fields))


def test_trainings_that_fail_are_a_part_of_their_own():
    """Of AReLU's five seeds three learned; its level and its difference are of these, its median of all."""
    comparison = collapsed(chance=20.0)
    arelu = comparison.arm("arelu")
    assert set(arelu.failed) == {0, 4}
    assert arelu.mixed
    assert arelu.estimate.mean == pytest.approx((84.7 + 85.5 + 87.6) / 3)
    assert arelu.difference.differences.to_dict() == pytest.approx({1: 10.8, 2: 20.9, 3: 20.7})
    exact = stats.binomtest(3, 5).proportion_ci()
    assert (arelu.learned.low, arelu.learned.high) == pytest.approx((100 * exact.low, 100 * exact.high))
    assert arelu.median == 84.7
    assert arelu.interquartile_mean == pytest.approx((47.2 + 84.7 + 85.5) / 3)
    assert arelu.best == 87.6
    assert arelu.improvement.mean == 60.0  # ahead in seeds 1, 2 and 3
    assert arelu.outcome is Outcome.FAILING  # the better one fails: its failures may outweigh its level


def test_an_arm_of_which_no_training_learned_is_compared_as_it_is():
    """Five seeds at chance are one group: their difference to ReLU is the mean of all five."""
    gain = collapsed(chance=20.0).arm("relu_gain")
    assert len(gain.failed) == 5
    assert not gain.mixed
    assert gain.estimate.mean == pytest.approx(20.2)
    assert gain.difference.estimate.mean == pytest.approx(20.2 - np.mean(MAML["relu"]))
    assert gain.outcome is Outcome.DIFFERENT


def test_runs_that_say_they_collapsed():
    findings = sweep({"relu": 60.0, "arelu": 70.0})
    runs = findings.runs.assign(**{"train/collapsed": 0.0})
    runs.loc[(runs["activation"] == "arelu") & (runs["seed"] == 3), "train/collapsed"] = 1.0
    arelu = one(replace(findings, runs=runs)).arm("arelu")
    assert arelu.failed == {3: "collapsed"}
    assert arelu.estimate.n == 4


def test_failures_of_the_worse_arm_do_not_hide_a_difference():
    """relu has a training at chance and is twenty points below in the others: no count of failures turns that round."""
    findings = sweep({"relu": 60.0, "arelu": 80.0}, chance=20.0, arm_sd=0.5)
    runs = findings.runs.copy()
    runs.loc[(runs["activation"] == "relu") & (runs["seed"] == 1), "test/accuracy"] = 20.0
    assert one(replace(findings, runs=runs)).arm("arelu").outcome is Outcome.DIFFERENT
    close = sweep({"relu": 60.0, "arelu": 60.0}, chance=20.0, arm_sd=0.5, margin=10.0)
    assert one(close).arm("arelu").outcome is Outcome.EQUIVALENT
    runs = close.runs.copy()
    runs.loc[(runs["activation"] == "relu") & (runs["seed"] == 1), "test/accuracy"] = 20.0
    assert one(replace(close, runs=runs)).arm("arelu").outcome is Outcome.FAILING


def test_no_interval_beyond_the_possible():
    findings = sweep({"relu": 97.0, "arelu": 99.0}, seeds=[0, 1], arm_sd=2.0)
    comparison = one(replace(findings, runs=findings.runs.assign(**{"test/accuracy": [97.0, 94.0, 99.0, 96.5]})))
    for arm in comparison.arms:
        assert 0 <= arm.estimate.low <= arm.estimate.high <= 100
        assert arm.estimate.cut
    assert comparison.arm("arelu").test.interval.low >= -100
    assert math.isinf(replace(findings, units={}).limits()[1])


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
    assert comparison.arm("elu").failed == {4: "diverged"}
    assert comparison.arm("elu").estimate.n == 4
    assert comparison.arms[-1].name == "pau"  # without a number, at the end
    assert comparison.arm("pau").failed == dict.fromkeys(range(5), "diverged")
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
