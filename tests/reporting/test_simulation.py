"""The statistics do what they promise on sweeps whose truth is known."""

import math

import numpy as np
import pandas as pd
import pytest

from arelu_meta.analysis.analyse import analyse
from arelu_meta.analysis.bootstrap import bca_interval
from arelu_meta.analysis.holm import holm
from arelu_meta.analysis.paired import estimate, paired_t_p
from arelu_meta.analysis.permutation import sign_flip_p
from tests.reporting.sweeps import sweep

SWEEPS = 2000


def simulated(arms: int, seeds: int, random: np.random.Generator) -> np.ndarray:
    """Sweeps without any difference between arms, (SWEEPS, 1 + arms, seeds): a seed's luck is shared by all arms."""
    return 70 + random.normal(0, 3, (SWEEPS, 1, seeds)) + random.normal(0, 1.5, (SWEEPS, 1 + arms, seeds))


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_cover_the_truth(seeds: int):
    """95 % +- 2, of the mean of an arm and of a paired difference."""
    sweeps = simulated(1, seeds, np.random.default_rng(seeds))
    means = [estimate(arm) for arm in sweeps[:, 0]]
    assert np.mean([one.low <= 70 <= one.high for one in means]) == pytest.approx(0.95, abs=0.02)
    pairs = [estimate(arms[1] - arms[0]) for arms in sweeps]
    assert np.mean([one.low <= 0 <= one.high for one in pairs]) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("arms", "seeds"), [(6, 5), (14, 5), (6, 3)])
@pytest.mark.parametrize("test", [paired_t_p, sign_flip_p])
def test_false_alarms_in_a_whole_table(test, arms: int, seeds: int):
    """Of sweeps without a difference at most 5 % have any arm called detectable, within the luck of 2,000."""
    sweeps = simulated(arms, seeds, np.random.default_rng(arms + seeds))
    differences = sweeps[:, 1:] - sweeps[:, :1]
    alarms = [min(holm([test(arm) for arm in table])) < 0.05 for table in differences]
    assert np.mean(alarms) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / SWEEPS)


def test_without_correction_there_would_be_more():
    """So that the test above cannot pass for want of power: uncorrected, six arms raise false alarms far above 5 %."""
    sweeps = simulated(6, 5, np.random.default_rng(11))
    alarms = [min(paired_t_p(arm) for arm in table) < 0.05 for table in sweeps[:, 1:] - sweeps[:, :1]]
    assert np.mean(alarms) > 0.12


def test_bootstrap_is_too_narrow_for_five_seeds():
    """Why the t interval stands in the tables: on the same 600 samples BCa misses the truth far more often."""
    samples = np.random.default_rng(0).normal(size=(600, 5))
    bootstrap = np.mean([low <= 0 <= high for low, high in map(bca_interval, samples)])
    student = np.mean([one.low <= 0 <= one.high for one in map(estimate, samples)])
    assert student == pytest.approx(0.95, abs=0.03)
    assert 0.75 < bootstrap < 0.9


def test_the_whole_analysis_finds_what_is_there_and_nothing_else():
    """25 sweeps through `analyse`: 16 points are always found; arms without a difference in at most 5 % + luck."""
    false, found = 0, 0
    for number in range(25):
        truth = {"relu": 66.0, "same": 66.0, "alike": 66.0, "arelu": 82.0}
        (comparison,) = analyse(sweep(truth, arm_sd=1.5, random_seed=number)).judged
        false += comparison.arm("same").apart or comparison.arm("alike").apart
        found += comparison.arm("arelu").apart
    assert found == 25
    assert false <= 5  # more than 5 of 25 has a chance of 0.1 % at a rate of 5 %


def test_sweeps_are_what_they_say():
    """The generator itself: with no luck every run has the truth of its arm."""
    runs = sweep({"relu": 60.0, "arelu": 75.0}, seed_sd=0, arm_sd=0).runs
    expected = pd.Series({"arelu": 75.0, "relu": 60.0})
    assert runs.groupby("activation")["test/accuracy"].mean().to_dict() == expected.to_dict()
