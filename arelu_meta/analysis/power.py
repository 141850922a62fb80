"""How large a difference a design finds, and how many seeds it takes to find one of a given size."""

import math

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)
REACH = 9.0  # beyond nine deviations a Gaussian has 1e-19
MOST_SEEDS = 10_000


def paired_t_power(effect: float, n: int, alpha: float) -> float:
    """Chance that the two-sided paired t test over n pairs finds a true mean difference of `effect` deviations.

    >>> round(paired_t_power(0.0, 5, 0.05), 6)  # no effect: the false alarms
    0.05
    """
    from scipy import special

    critical, freedom = -float(special.stdtrit(n - 1, alpha / 2)), n - 1
    power = 0.0
    for shift in (effect * math.sqrt(n), -effect * math.sqrt(n)):
        # P(T > critical) of the noncentral t distribution, as an integral over its Gaussian part z:
        # T = (z + shift) / sqrt(V / freedom) exceeds the critical value when V < freedom ((z + shift) / critical)^2.
        # scipy's own `nct` gives NaN for two or three pairs and a small alpha.
        start = max(-REACH, -shift)
        if start < REACH:
            z = start + (NODES + 1) * (REACH - start) / 2
            inside = special.gammainc(freedom / 2, freedom * ((z + shift) / critical) ** 2 / 2)
            density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            power += float((WEIGHTS * density * inside).sum() * (REACH - start) / 2)
    return power


def detectable_difference(sd: float, n: int, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true difference that the paired t test over n pairs would have found with the given power.

    Args:
        sd: Standard deviation of the paired differences.
        n: How many pairs, such as seeds.
        alpha: Level of the two-sided test; divide it by the number of arms for Holm's first step.
        power: Chance of finding the difference.

    Returns:
        The difference in the unit of `sd`; NaN where no test can be made: below two pairs, or differences that do not
        vary.

    Example:
        >>> round(detectable_difference(1.0, 5), 2)  # 1.68 deviations: five seeds find only large differences
        1.68
    """
    from scipy import optimize

    if n < 2 or not sd > 0:
        return math.nan
    high = 1.0
    while paired_t_power(high, n, alpha) < power:
        high *= 2
    return sd * float(optimize.brentq(lambda effect: paired_t_power(effect, n, alpha) - power, 0.0, high))


def seeds_needed(sd: float, difference: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """How many seeds the paired t test needs to find a true difference of this size.

    Args:
        sd: Standard deviation of the paired differences, as far as it is known.
        difference: Size of the difference that matters, in the unit of `sd`.
        alpha: Level of the two-sided test.
        power: Chance of finding the difference.

    Returns:
        The smallest number of seeds; None above 10,000, or where the differences do not vary.

    Example:
        >>> seeds_needed(7.1, 5.0)
        18
    """
    if not (sd > 0 and difference > 0) or paired_t_power(difference / sd, MOST_SEEDS, alpha) < power:
        return None
    low, high = 1, MOST_SEEDS  # one seed is too few, `high` is enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if paired_t_power(difference / sd, middle, alpha) >= power else (middle, high)
    return high
