import math

import numpy as np
import pytest
from scipy import stats

from arelu_meta.analysis.estimates import Estimate, mean_interval, proportion_interval
from arelu_meta.errors import InputError


def test_interval_by_hand():
    """1, 2, 3: mean 2, sd 1, standard error 1 / sqrt(3); t(0.975, 2) = 4.302653 in any printed table."""
    estimate = mean_interval([1.0, 2.0, 3.0])
    assert estimate.mean == 2.0
    assert estimate.n == 3
    assert estimate.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert estimate.low == pytest.approx(2 - estimate.half_width)
    assert estimate.high == pytest.approx(2 + estimate.half_width)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_equals_scipy(confidence: float):
    values = np.random.default_rng(0).normal(size=17)
    low, high = stats.t.interval(confidence, 16, loc=values.mean(), scale=stats.sem(values))
    estimate = mean_interval(values, confidence)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-12)


def test_covers_the_truth_as_often_as_it_says():
    """Of 2,000 samples of a Gaussian the 95 % interval holds the mean in 95 %, within four standard errors."""
    random = np.random.default_rng(0)
    intervals = [mean_interval(random.normal(size=6)) for _ in range(2000)]
    share = np.mean([interval.low <= 0 <= interval.high for interval in intervals])
    assert abs(share - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_equal_values_have_no_width():
    assert mean_interval([0.5] * 4) == Estimate(0.5, 0.5, 0.5, 4)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_too_few_values(values: list[float]):
    with pytest.raises(InputError, match=f"at least 2 values, not {len(values)}"):
        mean_interval(values)


def test_written_as_percent():
    assert Estimate(0.816, 0.809, 0.823, 600).percent() == "81.60 % ± 0.70 (n = 600)"


@pytest.mark.parametrize(("share", "n"), [(0.5, 100), (0.9, 20), (0.0, 10), (1.0, 10)])
def test_wilson_interval_by_hand(share: float, n: int):
    """The shares p with (share - p)^2 = z^2 p (1 - p) / n.

    They are the roots of (1 + z^2/n) p^2 - (2 share + z^2/n) p + share^2.

    z = 1.959964, the 0.975 quantile of the normal distribution in any printed table.
    """
    square = 1.959964**2 / n
    a, b, c = 1 + square, -(2 * share + square), share**2
    root = math.sqrt(max(b * b - 4 * a * c, 0))
    estimate = proportion_interval(share, n)
    assert (estimate.low, estimate.high) == pytest.approx(((-b - root) / (2 * a), (-b + root) / (2 * a)), abs=1e-6)
    assert (estimate.mean, estimate.n) == (share, n)
    assert 0 <= estimate.low <= share <= estimate.high <= 1


def test_more_confidence_is_wider():
    assert proportion_interval(0.5, 50, 0.99).half_width > proportion_interval(0.5, 50, 0.9).half_width


def test_no_share_has_no_interval():
    estimate = proportion_interval(math.nan, 10)
    assert math.isnan(estimate.mean)
    assert math.isnan(estimate.low)
    assert estimate.n == 10
