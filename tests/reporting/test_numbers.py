# ruff: noqa: RUF001
import math

import pytest

from arelu_meta.analysis.estimates import Estimate
from arelu_meta.reporting.numbers import Numbers, duration, p_value, stated_p


def test_differences_of_percentages_are_points():
    numbers = Numbers.fitting([81.6, 12.0], "%")
    assert numbers.difference(-1.5) == "−1.50 points"
    assert numbers.with_unit(81.6) == "81.60 %"
    assert Numbers.fitting([0.1], "s").difference(0.25) == "+0.2500 s"


@pytest.mark.parametrize(("values", "written"), [([0.5], "0.1235"), ([50.0], "0.12"), ([5000.0], "0"), ([], "0.1235")])
def test_digits_fit_the_size(values: list[float], written: str):
    assert Numbers.fitting(values).value(0.12345) == written


def test_no_negative_zero():
    assert Numbers(2).signed(-0.001) == "+0.00"


def test_intervals():
    numbers = Numbers(1)
    assert numbers.with_interval(Estimate(2.0, -1.0, 5.0, 3)) == "2.0 [−1.0, 5.0]"
    assert numbers.signed_with_interval(Estimate(2.0, -1.0, 5.0, 3)) == "+2.0 [−1.0, +5.0]"
    assert numbers.with_interval(Estimate(2.0, math.nan, math.nan, 1)) == "2.0"
    assert numbers.signed_with_interval(Estimate(math.nan, math.nan, math.nan, 0)) == "–"


@pytest.mark.parametrize(("p", "written"), [(0.0004, "< 0.001"), (0.0625, "0.0625"), (0.003, "0.003"), (1.0, "1.00")])
def test_p_values(p: float, written: str):
    assert p_value(p) == written
    assert stated_p(p) == (f"p {written}" if "<" in written else f"p = {written}")


def test_no_p_value_and_no_duration():
    assert p_value(math.nan) == "–"
    assert duration(math.nan) == "unknown"
