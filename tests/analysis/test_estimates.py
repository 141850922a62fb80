"""Estimates and tests: by hand, against scipy and statsmodels, and on simulated sweeps whose truth is known."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from arelu_meta.analysis.estimates import (
    Estimate,
    estimate_mean,
    holm,
    mean_interval,
    paired_difference,
    paired_t_p,
    proportion_interval,
    sign_flip_p,
    smallest_sign_flip_p,
    standard_deviation,
)
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


def test_intervals_end_where_nothing_can_be():
    """Three results near the ceiling, 96, 98 and 100: mean 98, sd 2, t(0.975, 2) = 4.303: up to 102.97."""
    estimate = mean_interval([96.0, 98.0, 100.0]).within(0.0, 100.0)
    assert (estimate.mean, estimate.high, estimate.cut) == (98.0, 100.0, True)
    assert estimate.low == pytest.approx(98 - 4.302653 * 2 / math.sqrt(3), rel=1e-6)
    inside = mean_interval([49.0, 50.0, 51.0])
    assert inside.within(0.0, 100.0) == inside
    assert not estimate_mean(np.array([1.0])).within(0.0, 100.0).cut


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
    assert Estimate(0.875, 0.64, 0.97, 16).percent() == "87.50 % (64.00 to 97.00, n = 16)"  # ± 16.5 would pass 100
    assert Estimate(0.95, 0.85, 1.05, 3).percent() == "95.00 % ± 10.00 (n = 3)"  # what its interval says itself


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


def test_seeds_are_paired_by_number_not_by_place():
    """Shared seeds 1 and 3: 5 - 1 = 4 and 9 - 3 = 6; mean 5, sd sqrt(2)."""
    pair = paired_difference(pd.Series({3: 9.0, 1: 5.0, 7: 100.0}), pd.Series({0: 50.0, 1: 1.0, 3: 3.0}))
    assert pair.differences.to_dict() == {3: 6.0, 1: 4.0}
    assert (pair.estimate.mean, pair.n) == (5.0, 2)
    assert pair.sd == pytest.approx(math.sqrt(2))
    assert pair.estimate.half_width == pytest.approx(12.7062, rel=1e-5)  # t(0.975, 1) * sd / sqrt(2)


def test_paired_test_equals_scipy():
    random = np.random.default_rng(0)
    ours, theirs = (pd.Series(random.normal(mean, 2, 7)) for mean in (3, 1))
    pair = paired_difference(ours, theirs)
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
    pair = paired_difference(pd.Series((84.2, 84.6, 75.9, 82.2, 81.1)), pd.Series(others))
    assert (pair.estimate.mean, pair.estimate.low, pair.estimate.high) == pytest.approx((mean, low, high), abs=0.06)
    assert pair.p_t == pytest.approx(p, abs=0.01)


def test_intervals_of_another_confidence_equal_scipy():
    random = np.random.default_rng(3)
    ours, theirs = (pd.Series(random.normal(0, 1, 6)) for _ in range(2))
    reference = stats.ttest_rel(ours, theirs).confidence_interval(0.99)
    found = paired_difference(ours, theirs).interval(0.99)
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), rel=1e-10)


def test_one_seed():
    pair = paired_difference(pd.Series({0: 2.0}), pd.Series({0: 1.5}))
    assert (pair.estimate.mean, pair.n) == (0.5, 1)
    assert math.isnan(pair.estimate.low)
    assert math.isnan(pair.p_t)
    assert pair.p_permutation == smallest_sign_flip_p(1) == 1.0
    assert not pair.constant


def test_no_shared_seed():
    pair = paired_difference(pd.Series({0: 2.0}), pd.Series({1: 1.5}))
    assert pair.n == 0
    assert math.isnan(pair.estimate.mean)
    assert math.isnan(pair.p_t)
    assert math.isnan(pair.p_permutation)


def test_identical_arms():
    values = pd.Series([0.1, 0.2, 0.3])
    pair = paired_difference(values, values.copy())
    assert pair.p_t == pair.p_permutation == 1.0
    assert pair.identical
    assert (pair.estimate.mean, pair.sd) == (0.0, 0.0)


def test_the_same_difference_in_every_seed_cannot_be_tested():
    """0.1 + 0.2 is not 0.3 in binary: what rounding leaves must not become a spread."""
    values = pd.Series([0.1, 0.7, 1.3, 2.9])
    pair = paired_difference(values + 0.2, values)
    assert pair.constant
    assert not pair.identical
    assert math.isnan(pair.p_t)
    assert pair.p_permutation == 2 / 2**4


def test_few_values():
    assert estimate_mean(np.array([])).n == 0
    assert math.isnan(standard_deviation(np.array([1.0])))
    assert math.isnan(paired_t_p(np.array([])))


def test_sign_flips_by_hand():
    """1, 2, -4: sums of the 8 sign patterns are +-7, +-5, +-3, +-1 and the observed one is -1: all 8 reach it."""
    assert sign_flip_p(np.array([1.0, 2.0, -4.0])) == 1.0


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("size", [2, 5, 8, 10])
def test_sign_flips_counted_one_by_one(size: int, tied: bool):
    """Ties too: sums of tenths that are equal on paper differ in the last bits."""
    differences = np.random.default_rng(size).normal(0.7, 1, size)
    differences = differences.round(1) if tied else differences
    sums = np.array([np.dot(signs, differences) for signs in itertools.product((1, -1), repeat=size)]).round(9)
    assert sign_flip_p(differences) == np.mean(np.abs(sums) >= abs(differences.sum().round(9)))


def test_large_samples_are_drawn_and_never_give_zero():
    """20 equal signs: 2 of 2^20 patterns, about 0.2 of 100,000 draws; the observed pattern keeps p above 0."""
    assert 0 < sign_flip_p(np.ones(20)) < 1e-3
    scattered = np.random.default_rng(1).normal(0.4, 1, 20)
    assert sign_flip_p(scattered) == pytest.approx(stats.ttest_1samp(scattered, 0).pvalue, abs=0.02)
    assert sign_flip_p(scattered) == sign_flip_p(scattered)


@pytest.mark.parametrize(("size", "smallest"), [(1, 1.0), (2, 0.5), (5, 0.0625), (6, 0.03125)])
def test_cannot_go_below(size: int, smallest: float):
    assert smallest_sign_flip_p(size) == smallest
    assert sign_flip_p(np.arange(1.0, size + 1)) == smallest


def test_nothing_and_no_difference():
    assert np.isnan(sign_flip_p(np.array([])))
    assert np.isnan(smallest_sign_flip_p(0))
    assert sign_flip_p(np.zeros(4)) == 1.0


def test_holm_by_hand():
    """0.01 * 4, then 0.02 * 3 = 0.06, then 0.022 * 2 = 0.044, raised to 0.06, then 0.9."""
    assert holm([0.02, 0.01, 0.9, 0.022]) == pytest.approx([0.06, 0.04, 0.9, 0.06])


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_holm_equals_statsmodels(size: int):
    p_values = np.random.default_rng(size).uniform(size=size) ** 3
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1], rel=1e-12)


def test_tests_that_could_not_be_made_do_not_count():
    corrected = holm([0.01, math.nan, 0.04])
    assert [corrected[0], corrected[2]] == holm([0.01, 0.04])
    assert math.isnan(corrected[1])
    assert holm([]) == []


SWEEPS = 2000


def simulated(arms: int, seeds: int, random: np.random.Generator) -> np.ndarray:
    """Sweeps without any difference between arms, (SWEEPS, 1 + arms, seeds): a seed's luck is shared by all arms."""
    return 70 + random.normal(0, 3, (SWEEPS, 1, seeds)) + random.normal(0, 1.5, (SWEEPS, 1 + arms, seeds))


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_cover_the_truth(seeds: int):
    """95 % +- 2, of the mean of an arm and of a paired difference."""
    sweeps = simulated(1, seeds, np.random.default_rng(seeds))
    means = [estimate_mean(arm) for arm in sweeps[:, 0]]
    assert np.mean([one.low <= 70 <= one.high for one in means]) == pytest.approx(0.95, abs=0.02)
    pairs = [estimate_mean(arms[1] - arms[0]) for arms in sweeps]
    assert np.mean([one.low <= 0 <= one.high for one in pairs]) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("arms", "seeds"), [(6, 5), (14, 5), (6, 3)])
def test_false_alarms_in_a_whole_table(arms: int, seeds: int):
    """Of sweeps without a difference at most 5 % have any arm called detectable, within the luck of 2,000."""
    sweeps = simulated(arms, seeds, np.random.default_rng(arms + seeds))
    differences = sweeps[:, 1:] - sweeps[:, :1]
    alarms = [min(holm([paired_t_p(arm) for arm in table])) < 0.05 for table in differences]
    assert np.mean(alarms) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / SWEEPS)


def test_false_alarms_of_the_permutation_test():
    """Seven seeds reach p = 2 / 128; 3 of 64 pairs of patterns lie below 0.05, and 400 sweeps have their luck."""
    sweeps = simulated(1, 7, np.random.default_rng(7))[:400]
    alarms = [sign_flip_p(arms[1] - arms[0]) < 0.05 for arms in sweeps]
    assert np.mean(alarms) == pytest.approx(3 / 64, abs=3 * math.sqrt(0.05 * 0.95 / 400))


def test_without_correction_there_would_be_more():
    """So that the test above cannot pass for want of power: uncorrected, six arms raise false alarms far above 5 %."""
    sweeps = simulated(6, 5, np.random.default_rng(11))
    alarms = [min(paired_t_p(arm) for arm in table) < 0.05 for table in sweeps[:, 1:] - sweeps[:, :1]]
    assert np.mean(alarms) > 0.12
