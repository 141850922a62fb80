# ruff: noqa: RUF001
import math

import numpy as np
import pytest

from arelu_meta.analysis.estimates import Estimate
from arelu_meta.reporting.numbers import NumberFormat, duration_text, p_value


def test_differences_of_percentages_are_points():
    numbers = NumberFormat.for_values([81.6, 12.0], "%")
    assert (numbers.unit, numbers.difference_unit) == ("%", "points")
    assert (numbers.value(81.6), numbers.signed(-1.5)) == ("81.60", "−1.50")
    assert NumberFormat.for_values([0.1], "s").difference_unit == "s"


@pytest.mark.parametrize(("values", "written"), [([0.5], "0.1235"), ([50.0], "0.12"), ([5000.0], "0"), ([], "0.1235")])
def test_digits_fit_the_size(values: list[float], written: str):
    assert NumberFormat.for_values(values).value(0.12345) == written


def test_no_negative_zero():
    assert NumberFormat(2).signed(-0.001) == "+0.00"


def test_the_last_bits_decide_no_digit():
    """48.805 summed up in two orders, as two versions of NumPy do."""
    low, high = np.nextafter(48.805, 0), np.nextafter(48.805, 100)
    written = NumberFormat(2, "%")
    assert f"{low:.2f}" != f"{high:.2f}"
    assert written.value(low) == written.value(high)
    assert written.signed(-low) == written.signed(-high)


def test_intervals():
    numbers = NumberFormat(1)
    assert numbers.with_interval(Estimate(2.0, -1.0, 5.0, 3)) == "2.0 [−1.0, 5.0]"
    assert numbers.with_interval(Estimate(2.0, -1.0, 5.0, 3), signed=True) == "+2.0 [−1.0, +5.0]"
    assert numbers.with_interval(Estimate(2.0, math.nan, math.nan, 1)) == "2.0"
    assert numbers.with_interval(Estimate(math.nan, math.nan, math.nan, 0), signed=True) == "–"


@pytest.mark.parametrize(("p", "written"), [(0.0004, "< 0.001"), (0.0625, "0.0625"), (0.003, "0.003"), (1.0, "1.00")])
def test_p_values(p: float, written: str):
    assert p_value(p) == written


def test_no_p_value_and_no_duration():
    assert p_value(math.nan) == "–"
    assert duration_text(math.nan) == "unknown"
