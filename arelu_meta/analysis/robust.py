"""What stands beside a mean over seeds: median, interquartile mean, and how often one arm is ahead of another."""

import math

import numpy as np
import pandas as pd

from arelu_meta.analysis.estimates import Estimate
from arelu_meta.analysis.failures import exact_proportion_interval


def interquartile_mean(values: np.ndarray) -> float:
    """Mean of the middle half: a quarter of the values, rounded down, is left out at each end; NaN for none.

    >>> interquartile_mean(np.array([37.0, 90.0, 80.0, 85.0, 75.0]))  # of 75, 80 and 85
    80.0
    """
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean()) if len(values) else math.nan


def probability_of_improvement(values: pd.Series, others: pd.Series, *, higher_is_better: bool = True) -> Estimate:
    """How often one arm is ahead of the other on the same seed, with the exact interval of Clopper and Pearson.

    All trainings count: one that diverged is behind one that did not. It needs no distribution, and failures do not
    break it.

    Args:
        values: Results of one arm, indexed by seed, NaN where the training diverged.
        others: Results of the other; only seeds that both have are used.
        higher_is_better: Whether more is better.

    Returns:
        The share in per cent of the seeds in which the two differ; NaN with n = 0 where they never do.

    Example:
        >>> ahead = probability_of_improvement(pd.Series([47.2, 84.7, 85.5, 87.6, 37.0]),
        ...                                    pd.Series([61.0, 73.9, 64.6, 66.9, 73.9]))
        >>> ahead.mean, ahead.n
        (60.0, 5)
    """
    seeds = values.index.intersection(others.index)
    sign = 1 if higher_is_better else -1
    ours, theirs = ((sign * one[seeds].astype(float)).fillna(-math.inf).to_numpy() for one in (values, others))
    apart = ~np.isclose(ours, theirs, rtol=1e-12, atol=0)  # rounding makes no winner; two that diverged are level
    return exact_proportion_interval(int((ours > theirs)[apart].sum()), int(apart.sum()))
