"""Interval and verdict are of one test: checked against statsmodels, and against each other on drawn differences."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.weightstats import ttost_paired

from arelu_meta.analysis.decisions import Outcome, PairedTest, equivalence_p, family_sizes
from arelu_meta.analysis.estimates import PairedDifference, paired_difference


def pair(differences) -> PairedDifference:
    values = pd.Series(differences, dtype=float)
    return paired_difference(values, 0 * values)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("margin", [0.3, 1.0, 3.0])
def test_equivalence_equals_statsmodels(seed: int, margin: float):
    random = np.random.default_rng(seed)
    ours, theirs = (random.normal(mean, 1, 7) for mean in (0.2, 0.0))
    found = equivalence_p(paired_difference(pd.Series(ours), pd.Series(theirs)), margin)
    assert found == pytest.approx(ttost_paired(ours, theirs, -margin, margin)[0], rel=1e-9)


def test_interval_and_verdict_cannot_disagree():
    """Different is 0 outside the interval, equivalent the other interval inside the margin; for any family."""
    random, seen = np.random.default_rng(0), set()
    for _ in range(300):
        differences = random.normal(random.choice([0.0, 1.0]), 0.5, 5)
        test = PairedTest(pair(differences), int(random.integers(1, 8)), margin=1.2)
        shown, equal = test.interval, test.equivalence_interval
        assert (test.p < 0.05) == (not shown.low <= 0 <= shown.high)
        assert (test.p_equivalence < 0.05) == (equal.low > -1.2 and equal.high < 1.2)
        assert test.differs == (test.p < 0.05)
        seen.add(test.outcome)
    assert seen == {Outcome.DIFFERENT, Outcome.EQUIVALENT, Outcome.UNDECIDED}


def test_corrected_by_the_number_of_comparisons():
    differences = [1.0, 2.0, 3.0, 2.5]
    single, four = PairedTest(pair(differences)), PairedTest(pair(differences), 4)
    assert single.p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert four.p == pytest.approx(4 * single.p)
    reference = stats.ttest_1samp(differences, 0).confidence_interval(1 - 0.05 / 4)
    assert (four.interval.low, four.interval.high) == pytest.approx((reference.low, reference.high))


@pytest.mark.parametrize(
    ("differences", "fields", "outcome"),
    [
        ([5.0, 6.0, 5.5], {}, Outcome.DIFFERENT),
        ([0.1, -0.1, 0.05, 0.0], {"margin": 1.0}, Outcome.EQUIVALENT),
        ([0.1, -0.1, 0.05, 0.0], {}, Outcome.UNDECIDED),
        ([0.5, 0.51, 0.49], {"margin": 1.0}, Outcome.DIFFERENT),  # smaller than the margin, and there
        ([0.0, 0.0, 0.0], {"margin": 1.0}, Outcome.IDENTICAL),
        ([2.0, 2.0, 2.0], {}, Outcome.UNTESTED),
        ([2.0], {}, Outcome.UNTESTED),
        ([0.1, -0.1, 0.05, 0.0], {"margin": 1.0, "failing": True}, Outcome.FAILING),
        ([5.0, 6.0, 5.5], {"failing": True}, Outcome.DIFFERENT),  # only the worse one fails
        ([5.0, 6.0, 5.5], {"failing": True, "failures_decide": True}, Outcome.FAILING),
        ([2.0], {"failing": True}, Outcome.FAILING),
        ([], {"failing": True}, Outcome.UNTESTED),
    ],
)
def test_outcomes(differences: list[float], fields: dict, outcome: Outcome):
    assert PairedTest(pair(differences), **fields).outcome is outcome


def test_differences_beyond_the_possible_are_cut():
    test = PairedTest(pair([10.0, 90.0]), limit=100.0)
    assert (test.interval.low, test.interval.high, test.interval.cut) == (-100.0, 100.0, True)


def test_further_seeds():
    """sd 1 and a margin of 1: ten seeds find one deviation with 80 % power (statsmodels: 9.94)."""
    differences = np.array([-1.0, 0.0, 1.0])
    assert PairedTest(pair(differences), margin=1.0).further_seeds == 10 - 3
    assert PairedTest(pair(differences)).further_seeds is None
    assert PairedTest(pair(differences), margin=100.0).further_seeds == 0


def test_families():
    """The primary comparison is none of the others; what cannot be tested, or is identical, is no comparison."""
    pairs = {
        "a": pair([1.0, 2.0]),
        "b": pair([1.0, 3.0]),
        "c": pair([1.0]),
        "d": pair([0.0, 0.0]),
        "e": pair([2.0, 5.0]),
    }
    assert family_sizes(pairs, "a") == {"a": 1, "b": 2, "c": 2, "d": 2, "e": 2}
    assert family_sizes(pairs, None)["a"] == 3
    assert family_sizes({"a": pair([])}, None) == {"a": 1}
    assert math.isnan(PairedTest(pair([1.0])).p)
