"""The bias-corrected and accelerated (BCa) bootstrap interval of a mean (Efron 1987)."""

import functools
import itertools
import math

import numpy as np
from scipy import special

EXACT_UP_TO = 6  # 6^6 = 46,656 resamples
RESAMPLES = 20_000


@functools.lru_cache(maxsize=4)
def _places(size: int) -> np.ndarray:
    """Rows of drawn places, (resamples, size)."""
    if size <= EXACT_UP_TO:  # every resample there is: no random number in the result
        return np.array(list(itertools.product(range(size), repeat=size)))
    return np.random.default_rng(0).integers(0, size, (RESAMPLES, size))


def bca_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Ends of the interval of the mean; NaN below 3 values, where resampling has nothing to work with.

    >>> low, high = bca_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    >>> low + high == 6.0  # a symmetric sample has a symmetric interval
    True
    """
    if len(values) < 3:
        return math.nan, math.nan
    mean = float(values.mean())
    left_out = mean - (values.sum() - values) / (len(values) - 1)  # the mean less the jackknife's
    spread = float((left_out**2).sum())
    if spread <= (1e-12 * abs(mean)) ** 2:
        return mean, mean
    acceleration = float((left_out**3).sum()) / (6 * spread**1.5)
    means = values[_places(len(values))].mean(1)
    tolerance = 1e-12 * float(np.abs(values).max())  # equal means differ in the last bits
    below = ((means < mean - tolerance).mean() + (means <= mean + tolerance).mean()) / 2
    bias = float(special.ndtri(below))
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        score = bias + float(special.ndtri(tail))
        ends.append(float(np.quantile(means, special.ndtr(bias + score / (1 - acceleration * score)))))
    return ends[0], ends[1]
