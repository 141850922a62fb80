import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from arelu_meta.analysis.power import detectable_difference, paired_t_power, seeds_needed


@pytest.mark.parametrize("n", [2, 3, 5, 10, 200])
def test_detectable_difference_equals_statsmodels(n: int):
    reference = TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)
    assert detectable_difference(1.0, n) == pytest.approx(reference, rel=1e-5)
    assert detectable_difference(2.5, n) == pytest.approx(2.5 * reference, rel=1e-5)


@pytest.mark.parametrize("effect", [0.3, 1.0, 2.0])
def test_power_equals_statsmodels(effect: float):
    assert paired_t_power(effect, 8, 0.01) == pytest.approx(TTestPower().power(effect, 8, 0.01), abs=1e-7)


@pytest.mark.parametrize(("n", "alpha"), [(3, 0.05 / 14), (5, 0.05 / 14), (5, 0.05)])
def test_detectable_difference_by_simulation(n: int, alpha: float):
    """At the detectable difference four of five sweeps find it; scipy's noncentral t is NaN for some of these."""
    truth = detectable_difference(1.0, n, alpha=alpha)
    sweeps = np.random.default_rng(n).normal(truth, 1, (40_000, n))
    found = (stats.ttest_1samp(sweeps, 0, axis=1).pvalue < alpha).mean()
    assert found == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / 40_000))


@pytest.mark.parametrize(("sd", "n"), [(1.0, 1), (0.0, 5), (math.nan, 5)])
def test_no_test_no_limit(sd: float, n: int):
    assert math.isnan(detectable_difference(sd, n))


@pytest.mark.parametrize(("sd", "difference", "alpha"), [(7.1, 5.0, 0.05), (7.1, 2.0, 0.05), (1.0, 0.5, 0.05 / 4)])
def test_seeds_needed_equals_statsmodels(sd: float, difference: float, alpha: float):
    exact = TTestPower().solve_power(effect_size=difference / sd, alpha=alpha, power=0.8)
    assert seeds_needed(sd, difference, alpha=alpha) == math.ceil(exact)


def test_seeds_that_cannot_be_told():
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(math.nan, 1.0) is None
    assert seeds_needed(1000.0, 0.1) is None  # beyond 10,000
    assert seeds_needed(0.001, 100.0) == 2
