import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from arelu_meta.analysis.paired import compare, deviation, estimate, paired_t_p


def test_seeds_are_paired_by_number_not_by_place():
    """Shared seeds 1 and 3: 5 - 1 = 4 and 9 - 3 = 6; mean 5, sd sqrt(2)."""
    pair = compare(pd.Series({3: 9.0, 1: 5.0, 7: 100.0}), pd.Series({0: 50.0, 1: 1.0, 3: 3.0}))
    assert pair.differences.to_dict() == {3: 6.0, 1: 4.0}
    assert (pair.estimate.mean, pair.n) == (5.0, 2)
    assert pair.sd == pytest.approx(math.sqrt(2))
    assert pair.estimate.half_width == pytest.approx(12.7062, rel=1e-5)  # t(0.975, 1) * sd / sqrt(2)


def test_equals_scipy():
    random = np.random.default_rng(0)
    ours, theirs = (pd.Series(random.normal(mean, 2, 7)) for mean in (3, 1))
    pair = compare(ours, theirs)
    reference = stats.ttest_rel(ours, theirs)
    assert pair.p_t == pytest.approx(reference.pvalue, rel=1e-10)
    interval = reference.confidence_interval()
    assert (pair.estimate.low, pair.estimate.high) == pytest.approx((interval.low, interval.high), rel=1e-10)


@pytest.mark.parametrize(
    ("others", "mean", "low", "high", "p"),
    [
        ((60.1, 76.5, 72.6, 65.2, 56.0), 15.5, 3.5, 27.5, 0.023),
        ((80.4, 83.0, 79.9, 85.6, 83.4), -0.9, -5.1, 3.3, 0.596),
        ((84.9, 72.0, 83.0, 70.7, 87.7), 1.9, -10.0, 13.8, 0.682),
    ],
    ids=["relu", "arelu_frozen", "relu_gain"],
)
def test_a_replay_worked_out_elsewhere(others: tuple[float, ...], mean: float, low: float, high: float, p: float):
    """Five seeds of AReLU less three other arms, from a script of its own; accuracies here are rounded to a decimal."""
    pair = compare(pd.Series((84.2, 84.6, 75.9, 82.2, 81.1)), pd.Series(others))
    assert (pair.estimate.mean, pair.estimate.low, pair.estimate.high) == pytest.approx((mean, low, high), abs=0.06)
    assert pair.p_t == pytest.approx(p, abs=0.01)


def test_one_seed():
    pair = compare(pd.Series({0: 2.0}), pd.Series({0: 1.5}))
    assert (pair.estimate.mean, pair.n) == (0.5, 1)
    assert math.isnan(pair.estimate.low)
    assert math.isnan(pair.p_t)
    assert pair.p_permutation == pair.smallest_p == 1.0
    assert not pair.constant


def test_no_shared_seed():
    pair = compare(pd.Series({0: 2.0}), pd.Series({1: 1.5}))
    assert pair.n == 0
    assert math.isnan(pair.estimate.mean)
    assert math.isnan(pair.p_t)
    assert math.isnan(pair.p_permutation)


def test_identical_arms():
    values = pd.Series([0.1, 0.2, 0.3])
    pair = compare(values, values.copy())
    assert pair.p_t == pair.p_permutation == 1.0
    assert (pair.estimate.mean, pair.sd) == (0.0, 0.0)


def test_the_same_difference_in_every_seed_cannot_be_tested():
    """0.1 + 0.2 is not 0.3 in binary: what rounding leaves must not become a spread."""
    values = pd.Series([0.1, 0.7, 1.3, 2.9])
    pair = compare(values + 0.2, values)
    assert pair.constant
    assert math.isnan(pair.p_t)
    assert pair.p_permutation == 2 / 2**4


def test_few_values():
    assert estimate(np.array([])).n == 0
    assert math.isnan(deviation(np.array([1.0])))
    assert math.isnan(paired_t_p(np.array([])))
