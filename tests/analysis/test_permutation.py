import numpy as np
import pytest
from scipy import stats

from arelu_meta.analysis.permutation import sign_flip_p, smallest_p


def test_by_hand():
    """1, 2, -4: sums of the 8 sign patterns are +-7, +-5, +-3, +-1 and the observed one is -1: all 8 reach it."""
    assert sign_flip_p(np.array([1.0, 2.0, -4.0])) == 1.0


@pytest.mark.parametrize("size", [2, 5, 8, 12])
def test_equals_scipy(size: int):
    differences = np.random.default_rng(size).normal(0.7, 1, size)
    reference = stats.permutation_test(
        (differences, np.zeros(size)),
        lambda a, b, axis: (a - b).mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert sign_flip_p(differences) == pytest.approx(reference.pvalue, rel=1e-12)


def test_large_samples_are_drawn_and_never_give_zero():
    """20 equal signs: 2 of 2^20 patterns, about 0.2 of 100,000 draws; the observed pattern keeps p above 0."""
    assert 0 < sign_flip_p(np.ones(20)) < 1e-3
    scattered = np.random.default_rng(1).normal(0.4, 1, 20)
    assert sign_flip_p(scattered) == pytest.approx(stats.ttest_1samp(scattered, 0).pvalue, abs=0.02)
    assert sign_flip_p(scattered) == sign_flip_p(scattered)


@pytest.mark.parametrize(("size", "smallest"), [(1, 1.0), (2, 0.5), (5, 0.0625), (6, 0.03125)])
def test_cannot_go_below(size: int, smallest: float):
    assert smallest_p(size) == smallest
    assert sign_flip_p(np.arange(1.0, size + 1)) == smallest


def test_nothing_and_no_difference():
    assert np.isnan(sign_flip_p(np.array([])))
    assert np.isnan(smallest_p(0))
    assert sign_flip_p(np.zeros(4)) == 1.0
