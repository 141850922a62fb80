"""Trainings that failed, by one rule, and the share of those that learned."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from arelu_meta.analysis.estimates import Estimate

COLLAPSED = "train/collapsed"
"""Metric of a run: 1 where training fell back to chance after it had left it."""
DIVERGED, FELL_BACK, AT_CHANCE, FAR_BELOW = "diverged", "collapsed", "at chance", "far below the others"
NOT_REACHED = "never there"


def exact_proportion_interval(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """A share of n in per cent with the exact interval of Clopper and Pearson.

    It covers the true share at least as often as it says, for every n; with few observations more often.

    Args:
        successes: How many of the n, such as trainings that learned.
        n: How many there are.
        confidence: How often intervals made this way hold the true share, at least.

    Returns:
        The share in per cent, the ends of its interval and n; NaN where n is 0.

    Example:
        >>> share = exact_proportion_interval(5, 5)  # the low end solves p^5 = 0.025
        >>> round(share.low, 1), share.high
        (47.8, 100.0)
    """
    from scipy import special

    if not n:
        return Estimate(math.nan, math.nan, math.nan, 0)
    tail = (1 - confidence) / 2
    low = float(special.betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = float(special.betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return Estimate(100 * successes / n, 100 * low, 100 * high, n)


def chance_limit(chance: float) -> float:
    """The highest result in per cent that counts as chance: twice chance, or a fifth of the way to 100 %.

    Twice chance leaves room for networks that give one class for every image, which is not equally frequent; of two
    classes it would be everything.

    >>> chance_limit(10.0), chance_limit(20.0), chance_limit(50.0), chance_limit(1.0)
    (20.0, 36.0, 60.0, 2.0)
    """
    return min(2 * chance, chance + 0.2 * (100 - chance))


def failed_trainings(values: pd.Series, collapsed: pd.Series | None, chance: float | None) -> dict[int, str]:
    """Find the trainings of one arm in one setting that failed.

    A training failed where its result is not a number, where the run says that it collapsed, where its result is no
    better than chance. Or the seeds form two groups, which no mean describes: divided at the largest gap between
    neighbouring results, those below fail if all of them lie less than half as far above chance as the median of those
    above.

    Args:
        values: The metric by seed, in per cent where chance is given.
        collapsed: What the runs say of themselves by seed, 0 or 1; None where they say nothing.
        chance: The result of guessing, in per cent; None where that has no meaning, such as for a loss.

    Returns:
        The reason by seed.

    Example:
        >>> failed_trainings(pd.Series([47.2, 84.7, 85.5, 87.6, 20.0]), None, 20.0)
        {0: 'far below the others', 4: 'at chance'}
    """
    failed: dict[Any, str] = {}
    for seed, value in values.items():
        if not np.isfinite(value):
            failed[seed] = DIVERGED
        elif collapsed is not None and collapsed.get(seed, 0) >= 0.5:
            failed[seed] = FELL_BACK
        elif chance is not None and value <= chance_limit(chance):
            failed[seed] = AT_CHANCE
    rest = values.drop(list(failed)).sort_values()
    if chance is not None and len(rest) > 1:
        above = int(np.diff(rest.to_numpy()).argmax()) + 1
        if rest.iloc[above - 1] - chance < (float(rest.iloc[above:].median()) - chance) / 2:
            failed |= dict.fromkeys(rest.index[:above], FAR_BELOW)
    return {int(seed): failed[seed] for seed in values.index if seed in failed}


def failure_text(failed: Mapping[int, str]) -> str:
    """Write which seeds failed and how: `seed 4 diverged; seeds 0, 2 at chance`.

    >>> failure_text({4: "diverged", 0: "at chance", 2: "at chance"})
    'seed 4 diverged; seeds 0, 2 at chance'
    """
    seeds: dict[str, list[str]] = {}
    for seed, reason in failed.items():
        seeds.setdefault(reason, []).append(str(seed))
    return "; ".join(f"seed{'s' * (len(own) > 1)} {', '.join(own)} {reason}" for reason, own in seeds.items())
