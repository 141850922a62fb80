import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from arelu_meta.analysis.power import detectable_difference, paired_t_power


@pytest.mark.parametrize("n", [2, 3, 5, 10, 200])
def test_equals_statsmodels(n: int):
    reference = TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)
    assert detectable_difference(1.0, n) == pytest.approx(reference, rel=1e-5)
    assert detectable_difference(2.5, n) == pytest.approx(2.5 * reference, rel=1e-5)


@pytest.mark.parametrize("effect", [0.3, 1.0, 2.0])
def test_power_equals_statsmodels(effect: float):
    assert paired_t_power(effect, 8, 0.01) == pytest.approx(TTestPower().power(effect, 8, 0.01), abs=1e-7)


@pytest.mark.parametrize(("n", "alpha"), [(3, 0.05 / 14), (5, 0.05 / 14), (5, 0.05)])
def test_by_simulation(n: int, alpha: float):
    """At the detectable difference four of five sweeps find it; scipy's noncentral t is NaN for some of these."""
    truth = detectable_difference(1.0, n, alpha=alpha)
    sweeps = np.random.default_rng(n).normal(truth, 1, (40_000, n))
    found = (stats.ttest_1samp(sweeps, 0, axis=1).pvalue < alpha).mean()
    assert found == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / 40_000))


@pytest.mark.parametrize(("sd", "n"), [(1.0, 1), (0.0, 5), (math.nan, 5)])
def test_no_test_no_limit(sd: float, n: int):
    assert math.isnan(detectable_difference(sd, n))
