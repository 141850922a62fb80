"""What a paired comparison comes to: different, equivalent within the margin, or undecided."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from arelu_meta.analysis.estimates import Estimate, PairedDifference
from arelu_meta.analysis.power import detectable_difference, seeds_needed

ALPHA = 0.05


class Outcome(StrEnum):
    """The answers there are."""

    DIFFERENT = "different"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    FAILING = "undecided: trainings fail"
    IDENTICAL = "identical"
    UNTESTED = "not tested"


def equivalence_p(pair: PairedDifference, margin: float) -> float:
    """The larger p of two one-sided paired t tests: that the difference is above -margin, and below +margin.

    Args:
        pair: Differences seed by seed.
        margin: The smallest difference that would matter, above 0.

    Returns:
        Below 0.05 the true difference lies within the margin, with an error rate of at most 5 %; NaN where the
        differences do not vary.

    Example:
        >>> import pandas as pd
        >>> from arelu_meta.analysis.estimates import paired_difference
        >>> pair = paired_difference(pd.Series([1.0, 2.0, 3.0]), pd.Series([1.0, 1.0, 1.0]))
        >>> round(equivalence_p(pair, 5.0), 4)  # t = (1 - 5) sqrt(3) / 1 = -6.928, 2 degrees of freedom
        0.0101
    """
    from scipy import special

    if pair.n < 2 or not pair.sd > 0:
        return math.nan
    return float(special.stdtr(pair.n - 1, (abs(pair.estimate.mean) - margin) / pair.standard_error))


@dataclass(frozen=True, eq=False)
class PairedTest:
    """A paired difference, judged: interval and verdict are of one test, so that they cannot disagree.

    Of m comparisons that are corrected together, each is tested at 0.05 / m (Bonferroni), and its interval has the
    confidence 1 - 0.05 / m: all m together hold the truth in 95 %. Holm's procedure finds a little more, but has no
    such intervals; Dunnett's takes all arms for equally variable, which they are not.
    """

    difference: PairedDifference
    family: int = 1
    """How many comparisons are corrected together; 1 for the primary one."""
    margin: float | None = None
    """The smallest difference that would matter."""
    failing: bool = False
    """Whether some trainings of one of the two failed, and others did not."""
    failures_decide: bool = False
    """Whether trainings failed in the one whose level is better: its failures might outweigh it."""
    limit: float = math.inf
    """No difference can be larger: 100 points of per cent."""

    @property
    def p(self) -> float:
        """Of the paired t test, corrected; NaN where there is nothing to test."""
        return min(self.family * self.difference.p_t, 1.0)  # in this order NaN stays NaN

    @functools.cached_property
    def interval(self) -> Estimate:
        """The mean difference with the interval of the test: it leaves out 0 exactly where p is below 0.05."""
        return self.difference.interval(1 - ALPHA / self.family).within(-self.limit, self.limit)

    @property
    def p_equivalence(self) -> float:
        """Of the two one-sided tests, corrected; NaN without a margin."""
        return min(self.family * equivalence_p(self.difference, self.margin), 1.0) if self.margin else math.nan

    @property
    def equivalence_interval(self) -> Estimate:
        """The interval that lies within the margin exactly where the two one-sided tests find equivalence."""
        return self.difference.interval(1 - 2 * ALPHA / self.family).within(-self.limit, self.limit)

    @property
    def outcome(self) -> Outcome:
        """The answer."""
        if self.difference.identical:
            return Outcome.IDENTICAL
        if math.isnan(self.difference.p_t):
            return Outcome.FAILING if self.failing and self.difference.n else Outcome.UNTESTED
        if self.p < ALPHA and not self.failures_decide:
            return Outcome.DIFFERENT
        if self.failing:
            return Outcome.FAILING
        return Outcome.EQUIVALENT if self.p_equivalence < ALPHA else Outcome.UNDECIDED

    @property
    def differs(self) -> bool:
        """Whether there is a difference."""
        return self.outcome is Outcome.DIFFERENT

    @property
    def further_seeds(self) -> int | None:
        """Seeds beyond those at hand until a difference of the margin is found with 80 % power; None if unknown."""
        return self.further_seeds_for(self.margin) if self.margin else None

    def further_seeds_for(self, size: float) -> int | None:
        """Seeds beyond those at hand until a difference of this size is found with 80 % power; None if unknown."""
        if self.difference.overlap:  # however many splits, they are of the same images
            return None
        needed = seeds_needed(self.difference.sd, size, alpha=ALPHA / self.family)
        return None if needed is None else max(0, needed - self.difference.n)

    @property
    def detectable(self) -> float:
        """The true difference that these seeds find with 80 % power, at the observed sd; NaN if unknown."""
        if self.difference.overlap:
            return math.nan
        return detectable_difference(self.difference.sd, self.difference.n, alpha=ALPHA / self.family)


def family_sizes(pairs: Mapping[str, PairedDifference], primary: str | None) -> dict[str, int]:
    """How many comparisons each one is corrected with: the primary one by itself, all others that can be tested."""
    rest = sum(not math.isnan(pair.p_t) and not pair.identical for name, pair in pairs.items() if name != primary)
    return {name: 1 if name == primary else max(rest, 1) for name in pairs}
