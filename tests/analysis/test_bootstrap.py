import numpy as np
import pytest
from scipy import stats

from arelu_meta.analysis.bootstrap import bca_interval


@pytest.mark.parametrize("size", [4, 5, 6, 9, 20])
def test_equals_scipy(size: int):
    """scipy draws 200,000 resamples, ours are all there are up to 6 values.

    Of 5 values 5! / 5^5 = 4 % of the resamples have the sample's own mean, which rounding puts on either side in scipy.
    """
    values = np.random.default_rng(size).exponential(size=size)  # skewed: bias and acceleration are not 0
    reference = stats.bootstrap(
        (values,), np.mean, method="BCa", n_resamples=200_000, rng=np.random.default_rng(0), vectorized=True
    ).confidence_interval
    close = (0.05 if size < 7 else 0.02) * values.std()
    assert bca_interval(values) == pytest.approx((reference.low, reference.high), abs=close)


def test_skewed_values_have_a_skewed_interval():
    values = np.array([1.0, 1.0, 1.0, 2.0, 10.0])
    low, high = bca_interval(values)
    assert high - 3.0 > 3.0 - low > 0


def test_no_luck_in_it():
    values = np.random.default_rng(0).normal(size=30)
    assert bca_interval(values) == bca_interval(values)


def test_more_confidence_is_wider():
    values = np.random.default_rng(0).normal(size=8)
    (narrow_low, narrow_high), (wide_low, wide_high) = bca_interval(values, 0.8), bca_interval(values, 0.99)
    assert wide_low < narrow_low < narrow_high < wide_high


def test_too_few_and_constant_values():
    assert np.isnan(bca_interval(np.array([1.0, 2.0]))).all()
    assert bca_interval(np.full(5, 0.1)) == (pytest.approx(0.1), pytest.approx(0.1))
