import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from arelu_meta.analysis.robust import interquartile_mean, probability_of_improvement


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 20])
def test_interquartile_mean_equals_scipy(n: int):
    values = np.random.default_rng(n).normal(size=n)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_no_values():
    assert math.isnan(interquartile_mean(np.array([])))


def test_ahead_in_four_of_five():
    ours, theirs = pd.Series([5.0, 6.0, 7.0, 8.0, 1.0]), pd.Series([4.0, 5.0, 6.0, 7.0, 9.0])
    found = probability_of_improvement(ours, theirs)
    exact = stats.binomtest(4, 5).proportion_ci()
    assert (found.mean, found.n) == (80.0, 5)
    assert (found.low, found.high) == pytest.approx((100 * exact.low, 100 * exact.high))
    assert probability_of_improvement(ours, theirs, higher_is_better=False).mean == pytest.approx(20.0)


def test_seeds_by_number_ties_and_divergence():
    """Seed 0 is shared by none; 1 a tie; in 2 the other diverged, in 3 this one, in 4 both; 5 is ahead."""
    ours = pd.Series({5: 0.3, 1: 0.1 + 0.2, 2: 1.0, 3: math.nan, 4: math.nan})
    theirs = pd.Series({0: 9.0, 1: 0.3, 2: math.nan, 3: 0.1, 4: math.nan, 5: 0.2})
    found = probability_of_improvement(ours, theirs)
    assert (found.mean, found.n) == (pytest.approx(200 / 3), 3)
    lower = probability_of_improvement(ours, theirs, higher_is_better=False)
    assert (lower.mean, lower.n) == (pytest.approx(100 / 3), 3)  # diverging is worse whatever is better


def test_never_apart():
    same = pd.Series([1.0, 2.0])
    found = probability_of_improvement(same, same.copy())
    assert found.n == 0
    assert math.isnan(found.mean)
