"""Estimates with their uncertainty. Nothing here imports torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from arelu_meta.errors import InputError


@dataclass(frozen=True)
class Estimate:
    """A mean with the ends of its confidence interval and the number of observations behind it."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the interval."""
        return (self.high - self.low) / 2

    def percent(self) -> str:
        """Write it as `81.60 % ± 0.70 (n = 600)`."""
        return f"{100 * self.mean:.2f} % ± {100 * self.half_width:.2f} (n = {self.n})"


def mean_interval(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Estimate:
    """Mean with Student's t interval.

    >>> estimate = mean_interval([1.0, 2.0, 3.0])  # sd 1, t(0.975, 2) = 4.3027: half-width 4.3027 / sqrt(3)
    >>> round(estimate.half_width, 4)
    2.4841
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        raise InputError(f"an interval needs at least 2 values, not {array.size}")
    half = float(stats.t.ppf((1 + confidence) / 2, array.size - 1)) * float(array.std(ddof=1)) / math.sqrt(array.size)
    mean = float(array.mean())
    return Estimate(mean, mean - half, mean + half, int(array.size))


def proportion_interval(share: float, n: int, confidence: float = 0.95) -> Estimate:
    """A share of n with Wilson's interval, which stays inside [0, 1].

    >>> estimate = proportion_interval(0.5, 100)  # (0.5 + 1.92 / 100 -+ ...) / (1 + 3.84 / 100)
    >>> round(estimate.low, 4), round(estimate.high, 4)
    (0.4038, 0.5962)
    """
    if math.isnan(share):
        return Estimate(share, share, share, n)
    interval = stats.binomtest(round(share * n), n).proportion_ci(confidence, method="wilson")
    return Estimate(share, float(interval.low), float(interval.high), n)
