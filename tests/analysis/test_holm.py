import math

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from arelu_meta.analysis.holm import holm


def test_by_hand():
    """0.01 * 4, then 0.02 * 3 = 0.06, then 0.022 * 2 = 0.044, raised to 0.06, then 0.9."""
    assert holm([0.02, 0.01, 0.9, 0.022]) == pytest.approx([0.06, 0.04, 0.9, 0.06])


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_equals_statsmodels(size: int):
    p_values = np.random.default_rng(size).uniform(size=size) ** 3
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1], rel=1e-12)


def test_tests_that_could_not_be_made_do_not_count():
    corrected = holm([0.01, math.nan, 0.04])
    assert [corrected[0], corrected[2]] == holm([0.01, 0.04])
    assert math.isnan(corrected[1])
    assert holm([]) == []
