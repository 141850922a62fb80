"""Better and worse follow from the metric: more of a loss is worse."""

import pandas as pd
import pytest

from arelu_meta.analysis.analyse import analyse
from arelu_meta.analysis.direction import better, better_and_worse
from arelu_meta.analysis.paired import compare
from tests.reporting.sweeps import sweep


@pytest.mark.parametrize("higher", [True, False])
def test_a_difference(higher: bool):
    findings = sweep({"relu": 60.0, "arelu": 75.0}, higher_is_better=higher)
    more = compare(pd.Series([2.0, 3.0]), pd.Series([1.0, 1.0]))
    assert better(findings, more) is higher


@pytest.mark.parametrize(("higher", "counts"), [(True, (2, 1)), (False, (1, 2))])
def test_arms_that_cannot_be_told_apart_do_not_count(higher: bool, counts: tuple[int, int]):
    truth = {"relu": 60.0, "same": 60.0, "elu": 80.0, "celu": 80.0, "pau": 40.0}
    findings = sweep(truth, arm_sd=0.5, higher_is_better=higher)
    (comparison,) = analyse(findings).judged
    assert better_and_worse(findings, comparison.arms) == counts
