"""Estimates with their uncertainty, paired tests and Holm's correction.

Nothing here imports torch; scipy is imported where it is needed, because runs that only write `81.60 % ± 0.70` load
this module too.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from arelu_meta.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

EXACT_UP_TO = 14  # pairs: 16,384 sign patterns, about a tenth of a second in scipy
DRAWS = 100_000
MANY_PAIRS = 200  # from here on 10,000 draws and fewer: 100,000 would take minutes and gigabytes


@dataclass(frozen=True)
class Estimate:
    """A mean with the ends of its confidence interval and the number of observations behind it."""

    mean: float
    low: float
    """Lower end."""
    high: float
    """Upper end."""
    n: int
    """Observations."""
    cut: bool = False
    """Whether an end lay beyond what is possible and was put at the limit."""

    def within(self, lowest: float, highest: float) -> "Estimate":
        """Cut the interval where nothing can be: the truth is inside, so it covers as often as before.

        Args:
            lowest: the least that is possible.
            highest: the most that is possible.

        >>> Estimate(97.0, 91.0, 103.0, 5).within(0.0, 100.0)
        Estimate(mean=97.0, low=91.0, high=100.0, n=5, cut=True)
        """
        if not (self.low < lowest or self.high > highest):
            return self
        return replace(self, low=max(self.low, lowest), high=min(self.high, highest), cut=True)

    @property
    def half_width(self) -> float:
        """Half the interval."""
        return (self.high - self.low) / 2

    def percent(self) -> str:
        """Write it as `81.60 % ± 0.70 (n = 600)`; by its ends where ± would go below 0 or above 100 % and they do not.

        >>> Estimate(0.0625, 0.0111, 0.2833, 16).percent()
        '6.25 % (1.11 to 28.33, n = 16)'
        """
        if self.half_width > min(self.mean, 1 - self.mean) and self.low >= 0 and self.high <= 1:
            return f"{100 * self.mean:.2f} % ({100 * self.low:.2f} to {100 * self.high:.2f}, n = {self.n})"
        return f"{100 * self.mean:.2f} % ± {100 * self.half_width:.2f} (n = {self.n})"


def mean_interval(values: Sequence[float] | np.ndarray, confidence: float = 0.95, *, overlap: float = 0.0) -> Estimate:
    """Mean with Student's t interval.

    Args:
        values: Independent observations, (n,) with n of at least 2, such as the accuracies of n seeds or episodes.
        confidence: How often intervals made this way hold the true mean.
        overlap: Test images per training image where the values are of random splits of one set, which share most of
            what they are trained on: the squared error of the mean is (1 / n + overlap) of the variance then (Nadeau
            and Bengio 2003).

    Returns:
        The mean, the ends of its interval and n.

    Raises:
        InputError: There are fewer than two values.

    Example:
        >>> estimate = mean_interval([1.0, 2.0, 3.0])  # sd 1, t(0.975, 2) = 4.3027: half-width 4.3027 / sqrt(3)
        >>> round(estimate.half_width, 4)
        2.4841
    """
    from scipy import special

    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        raise InputError(f"an interval needs at least 2 values, not {array.size}")
    quantile = float(special.stdtrit(array.size - 1, (1 + confidence) / 2))
    with np.errstate(invalid="ignore", over="ignore"):  # an error may be infinite; the ends are NaN then
        half = quantile * float(array.std(ddof=1)) * math.sqrt(1 / array.size + overlap)
        mean = float(array.mean())
    return Estimate(mean, mean - half, mean + half, int(array.size))


def estimate_mean(values: np.ndarray, *, overlap: float = 0.0) -> Estimate:
    """`mean_interval`, but without ends for one value and all NaN for none."""
    if len(values) < 2:
        mean = float(values[0]) if len(values) else math.nan
        return Estimate(mean, math.nan, math.nan, len(values))
    return mean_interval(values, overlap=overlap)


def proportion_interval(share: float, n: int, confidence: float = 0.95) -> Estimate:
    """A share of n with Wilson's interval, which stays inside [0, 1].

    Args:
        share: Between 0 and 1, such as the accuracy on n test images; NaN gives an estimate of NaN.
        n: How many observations the share is of.
        confidence: How often intervals made this way hold the true share.

    Returns:
        The share, the ends of its interval and n.

    Example:
        >>> estimate = proportion_interval(0.5, 100)  # (0.5 + 1.92 / 100 -+ ...) / (1 + 3.84 / 100)
        >>> round(estimate.low, 4), round(estimate.high, 4)
        (0.4038, 0.5962)
    """
    from scipy import stats

    if math.isnan(share):
        return Estimate(share, share, share, n)
    interval = stats.binomtest(round(share * n), n).proportion_ci(confidence, method="wilson")
    return Estimate(share, float(interval.low), float(interval.high), n)


def standard_deviation(values: np.ndarray) -> float:
    """Standard deviation over seeds: NaN below two values, and exactly 0 where they differ by rounding alone."""
    if len(values) < 2:
        return math.nan
    sd = float(values.std(ddof=1))
    return sd if sd > 1e-12 * float(np.abs(values).max()) else 0.0


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """Differences of one arm to another on the seeds that both have, with their tests."""

    differences: "pd.Series"
    """By seed."""
    estimate: Estimate
    """Mean difference with Student's t interval; its ends are NaN with one seed, and where differences do not vary."""
    sd: float
    """Standard deviation of the differences."""
    p_t: float
    """Paired t test; NaN where the differences do not vary, or there is one."""
    overlap: float = 0.0
    """Of the splits that the differences are of, as in `mean_interval`."""

    @functools.cached_property
    def p_permutation(self) -> float:
        """Sign-flip permutation test, made when it is asked for: 20 seeds take a tenth of a second."""
        return sign_flip_p(self.differences.to_numpy())

    @property
    def identical(self) -> bool:
        """Whether both arms gave the same result in every seed."""
        return self.constant and self.estimate.mean == 0

    def interval(self, confidence: float) -> Estimate:
        """The mean difference with Student's t interval of another confidence than 95 %."""
        if self.n < 2 or self.constant:
            return self.estimate
        return mean_interval(self.differences.to_numpy(), confidence, overlap=self.overlap)

    @property
    def standard_error(self) -> float:
        """Of the mean difference."""
        return self.sd * math.sqrt(1 / self.n + self.overlap)

    @property
    def n(self) -> int:
        """Seeds that both arms have."""
        return self.estimate.n

    @property
    def constant(self) -> bool:
        """Whether all seeds give one and the same difference."""
        return self.n > 1 and self.sd == 0


def paired_difference(values: "pd.Series", others: "pd.Series", *, overlap: float = 0.0) -> PairedDifference:
    """Subtract the results of one arm from those of another, seed by seed, and test the difference.

    Args:
        values: Results of one arm, indexed by seed.
        others: Results of the other, indexed by seed; only seeds that both have are used.
        overlap: Test images per training image where they are indexed by split, as in `mean_interval`.

    Returns:
        The differences `values - others`, their mean with Student's 95 % interval, the paired t test and the
        sign-flip permutation test, both two-sided.

    Example:
        >>> import pandas as pd
        >>> pair = paired_difference(pd.Series({0: 84.0, 1: 82.0, 2: 80.0}), pd.Series({2: 77.0, 1: 80.0, 0: 83.0}))
        >>> pair.differences.to_dict(), pair.estimate.mean, round(pair.p_t, 4), pair.p_permutation
        ({0: 1.0, 1: 2.0, 2: 3.0}, 2.0, 0.0742, 0.25)
    """
    seeds = values.index.intersection(others.index)
    scale = max(float(values.abs().max()), float(others.abs().max())) if len(seeds) else 0.0
    series = (values[seeds] - others[seeds]).astype(float)
    series = series.where(series.abs() > 1e-12 * scale, 0.0)  # what rounding left of equal values
    raw = series.to_numpy()
    estimate, sd = estimate_mean(raw, overlap=overlap), standard_deviation(raw)
    if sd == 0:
        estimate = replace(estimate, low=math.nan, high=math.nan)
    return PairedDifference(series, estimate, sd, paired_t_p(raw, overlap=overlap), overlap)


def paired_t_p(differences: np.ndarray, *, overlap: float = 0.0) -> float:
    """Two-sided p of the paired t test: 1 for identical arms, NaN where the differences do not vary otherwise.

    >>> round(paired_t_p(np.array([1.0, 2.0, 3.0])), 4)  # t = 2 / (1 / sqrt(3)) = 3.4641, 2 degrees of freedom
    0.0742
    """
    from scipy import special

    sd = standard_deviation(differences)
    mean = float(differences.mean()) if len(differences) else math.nan
    if not sd > 0:
        return 1.0 if sd == 0 and mean == 0 else math.nan
    error = sd * math.sqrt(1 / len(differences) + overlap)
    return 2 * float(special.stdtr(len(differences) - 1, -abs(mean) / error))


def sign_flip_p(differences: np.ndarray) -> float:
    """Two-sided p of the mean difference when every sign was equally likely to fall either way.

    All 2^n patterns are counted up to n = 14; beyond that 100,000 seeded draws (above n = 200 at most
    10,000), with the observed pattern among them so that p is never 0.

    >>> sign_flip_p(np.array([1.0, 2.0, 3.0]))  # only +++ and --- reach |sum| = 6: 2 of 8
    0.25
    """
    from scipy import stats

    size, total = len(differences), float(np.abs(differences).sum())
    if size < 2 or total == 0:
        return 1.0 if size else math.nan
    draws = DRAWS if size <= MANY_PAIRS else max(1000, 10_000 * MANY_PAIRS // size)
    test = stats.permutation_test(
        (differences / total,),
        lambda flipped, axis: np.round(flipped.sum(axis), 12),  # equal sums differ in the last bits
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**size if size <= EXACT_UP_TO else draws,
        batch=2_000_000 // size + 1,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def smallest_sign_flip_p(n: int) -> float:
    """The smallest two-sided p that n pairs can give: all signs equal is 2 of 2^n patterns.

    >>> smallest_sign_flip_p(5)
    0.0625
    """
    return min(1.0, 2.0 ** (1 - n)) if n else math.nan


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of several tests made on one question.

    The smallest of m is multiplied by m, the next by m - 1, and none may fall below the one before it.

    Args:
        p_values: One per test. A NaN is a test that could not be made: it stays NaN and does not count into m.

    Returns:
        Corrected p values in the same order: comparing each with alpha keeps the chance of any false alarm below
        alpha.

    Example:
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, dtype=np.float64)
    corrected = np.full(len(raw), math.nan)
    tested = np.flatnonzero(~np.isnan(raw))
    order = tested[np.argsort(raw[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(raw[order] * factors), 1.0)
    return [float(p) for p in corrected]
