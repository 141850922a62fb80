import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from arelu_meta.analysis.failures import chance_limit, exact_proportion_interval, failed_trainings, failure_text


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (3, 5), (5, 5), (17, 20)])
def test_exact_interval_equals_statsmodels(successes: int, n: int):
    found = exact_proportion_interval(successes, n)
    low, high = proportion_confint(successes, n, method="beta")
    assert (found.mean, found.n) == (100 * successes / n, n)
    assert (found.low, found.high) == pytest.approx((100 * low, 100 * high), abs=1e-9)
    assert math.isnan(exact_proportion_interval(0, 0).mean)


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("share", [0.6, 0.8, 0.9, 0.99])
def test_the_exact_interval_covers_at_least_95_percent(share: float, n: int):
    """Summed over all outcomes: no simulation."""
    intervals = [exact_proportion_interval(k, n) for k in range(n + 1)]
    holds = [one.low <= 100 * share <= one.high for one in intervals]
    assert stats.binom.pmf(np.arange(n + 1), n, share)[holds].sum() >= 0.95


def test_one_rule_for_all_that_fail():
    """Chance 20: up to 36 all is chance; above the gap from 49 to 70 the median is 80, and half of the way there 50."""
    values = pd.Series({0: math.nan, 1: 20.3, 2: 80.0, 3: 84.0, 4: 75.0, 5: 49.0, 6: 70.0, 7: 81.0, 8: 79.0})
    said = pd.Series({4: 1.0, 2: 0.0})
    assert failed_trainings(values, said, 20.0) == {
        0: "diverged",
        1: "at chance",
        4: "collapsed",
        5: "far below the others",
    }
    assert failed_trainings(values, None, None) == {0: "diverged"}  # of a loss there is no chance


def test_where_most_trainings_collapse():
    """Four of five fell to 40: the median is no help, the gap is."""
    assert set(failed_trainings(pd.Series([41.0, 80.0, 39.0, 40.0, 42.0]), None, 20.0)) == {0, 2, 3, 4}


def test_slow_is_not_failed():
    """The widest gap, from 44 to 59, divides nothing: 44 is more than half as far above 10 as 59 is."""
    assert failed_trainings(pd.Series([44.4, 42.7, 22.0, 32.8, 58.6]), None, 10.0) == {}
    assert failed_trainings(pd.Series([50.0]), None, 10.0) == {}


def test_an_arm_at_chance_has_no_two_groups():
    """MNIST at a rate of 1e-4: networks that give one class for every image, and a little more."""
    values = pd.Series([11.35, 11.0, 11.35, 11.5, 15.3])
    assert failed_trainings(values, None, 10.0) == dict.fromkeys(range(5), "at chance")


def test_seeds_that_vary_do_not_fail():
    """20,000 Gaussian seeds of mean 85 and sd 5 at a chance of 20: half of the way to the median is 6.5 sd below."""
    values = pd.Series(np.random.default_rng(0).normal(85, 5, 20_000))
    assert failed_trainings(values, None, 20.0) == {}


@pytest.mark.parametrize("chance", [1.0, 10.0, 20.0, 50.0])
def test_chance_lies_below_its_limit_and_learning_above(chance: float):
    assert chance < chance_limit(chance) <= (chance + 100) / 2


def test_written():
    assert failure_text({}) == ""
    assert failure_text({3: "at chance"}) == "seed 3 at chance"
