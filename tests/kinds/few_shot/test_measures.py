import math

import pytest

from arelu_meta.analysis.estimates import Estimate
from arelu_meta.kinds.few_shot.measures import ACCURACY, MSE


@pytest.mark.parametrize(
    ("measure", "score", "than", "better"),
    [
        (ACCURACY, 0.5, 0.4, True),
        (ACCURACY, 0.4, 0.4, False),
        (MSE, 0.3, 0.4, True),
        (MSE, 0.5, 0.4, False),
        (MSE, math.nan, 0.4, False),
        (MSE, 9.0, math.nan, True),
    ],
)
def test_better(measure, score, than, better):
    assert measure.better(score, than=than) is better


def test_intervals_in_words():
    assert ACCURACY.interval(Estimate(0.816, 0.809, 0.823, 600)) == "81.60 % ± 0.70 (n = 600)"
    assert MSE.interval(Estimate(0.4216, 0.3866, 0.4566, 600)) == "0.422 ± 0.035 (n = 600)"
