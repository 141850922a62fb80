"""`Paired`: two arms compared seed by seed."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from arelu_meta.analysis.bootstrap import bca_interval
from arelu_meta.analysis.estimates import Estimate, mean_interval
from arelu_meta.analysis.permutation import sign_flip_p, smallest_p


@dataclass(frozen=True, eq=False)
class Paired:
    """Differences of one arm to another on the seeds that both have, with their tests."""

    differences: pd.Series
    """By seed."""
    estimate: Estimate
    """Mean difference with Student's t interval; its ends are NaN with one seed."""
    sd: float
    p_t: float
    """Paired t test; NaN where the differences do not vary, or there is one."""
    p_permutation: float
    bootstrap: tuple[float, float]

    @property
    def n(self) -> int:
        """Seeds that both arms have."""
        return self.estimate.n

    @property
    def smallest_p(self) -> float:
        """What the permutation test cannot go below."""
        return smallest_p(self.n)

    @property
    def constant(self) -> bool:
        """Whether all seeds give one and the same difference."""
        return self.n > 1 and self.sd == 0


def estimate(values: np.ndarray) -> Estimate:
    """Mean with Student's t interval over seeds; without ends for one value, all NaN for none."""
    if len(values) < 2:
        mean = float(values[0]) if len(values) else math.nan
        return Estimate(mean, math.nan, math.nan, len(values))
    return mean_interval(values)


def deviation(values: np.ndarray) -> float:
    """Standard deviation over seeds: NaN below two values, and exactly 0 where they differ by rounding alone."""
    if len(values) < 2:
        return math.nan
    sd = float(values.std(ddof=1))
    return sd if sd > 1e-12 * float(np.abs(values).max()) else 0.0


def paired_t_p(differences: np.ndarray) -> float:
    """Two-sided p of the paired t test: 1 for identical arms, NaN where the differences do not vary otherwise.

    >>> round(paired_t_p(np.array([1.0, 2.0, 3.0])), 4)  # t = 2 / (1 / sqrt(3)) = 3.4641, 2 degrees of freedom
    0.0742
    """
    sd = deviation(differences)
    mean = float(differences.mean()) if len(differences) else math.nan
    if not sd > 0:
        return 1.0 if sd == 0 and mean == 0 else math.nan
    return 2 * float(special.stdtr(len(differences) - 1, -abs(mean) / sd * math.sqrt(len(differences))))


def compare(values: pd.Series, others: pd.Series) -> Paired:
    """Subtract `others` from `values`, both indexed by seed, on the seeds they share."""
    seeds = values.index.intersection(others.index)
    scale = max(float(values.abs().max()), float(others.abs().max())) if len(seeds) else 0.0
    series = (values[seeds] - others[seeds]).astype(float)
    series = series.where(series.abs() > 1e-12 * scale, 0.0)  # what rounding left of equal values
    raw = series.to_numpy()
    return Paired(series, estimate(raw), deviation(raw), paired_t_p(raw), sign_flip_p(raw), bca_interval(raw))
