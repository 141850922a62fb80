"""What a design could have found: the power of the paired t test and the smallest difference it detects."""

import math

import numpy as np
from scipy import optimize, special

NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)
REACH = 9.0  # beyond nine deviations a Gaussian has 1e-19


def _above(critical: float, freedom: int, shift: float) -> float:
    """P(T > critical) of the noncentral t distribution, as an integral over its Gaussian part.

    T = (Z + shift) / sqrt(V / freedom) exceeds the critical value when V < freedom ((Z + shift) / critical)^2.
    scipy's own `nct` gives NaN for two or three pairs and a small alpha.
    """
    start = max(-REACH, -shift)
    if start >= REACH:
        return 0.0
    z = start + (NODES + 1) * (REACH - start) / 2
    inside = special.gammainc(freedom / 2, freedom * ((z + shift) / critical) ** 2 / 2)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return float((WEIGHTS * density * inside).sum() * (REACH - start) / 2)


def paired_t_power(effect: float, n: int, alpha: float) -> float:
    """Chance that the two-sided paired t test over n pairs finds a true mean difference of `effect` deviations.

    >>> round(paired_t_power(0.0, 5, 0.05), 6)  # no effect: the false alarms
    0.05
    """
    critical = -float(special.stdtrit(n - 1, alpha / 2))
    shift = effect * math.sqrt(n)
    return _above(critical, n - 1, shift) + _above(critical, n - 1, -shift)


def detectable_difference(sd: float, n: int, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true difference that n pairs, whose differences deviate by `sd`, would have found with the given power.

    NaN where no test can be made: below two pairs, or differences that do not vary.

    >>> round(detectable_difference(1.0, 5), 2)  # 1.68 deviations: five seeds find only large differences
    1.68
    """
    if n < 2 or not sd > 0:
        return math.nan
    high = 1.0
    while paired_t_power(high, n, alpha) < power:
        high *= 2
    return sd * float(optimize.brentq(lambda effect: paired_t_power(effect, n, alpha) - power, 0.0, high))
