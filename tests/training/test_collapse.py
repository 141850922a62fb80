"""Made-up curves of five-way accuracy."""

import pytest

from arelu_meta.training.collapse import collapsed

RISE = [0.2 + 0.006 * step for step in range(100)]  # to 0.794


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([], False),
        ([0.8], False),
        (RISE, False),
        ([0.2] * 100, False),  # never left chance
        ([0.29] * 50 + [0.2] * 50, False),  # 0.09 above chance is not clearly left
        ([0.31] * 50 + [0.2] * 50, True),
        (RISE + [0.25] * 20, True),
        (RISE + [0.2] * 20 + RISE, False),  # it came back
        (RISE + [0.6] * 20, False),  # a loss, not a collapse: 0.4 of 0.567 above chance are kept
        (RISE + [0.5] * 20, True),  # 0.3 of 0.567
        ([0.2] * 50 + [0.9] + [0.2] * 49, False),  # one lucky batch: 0.07 above chance in the mean of ten
        ([*RISE, 0.2], False),  # one unlucky batch
    ],
)
def test_ten_at_a_time(accuracies: list[float], expected: bool):
    assert bool(collapsed(accuracies, 0.2, window=10)) == expected


def test_single_measurements():
    """A validation is of many episodes, so that each counts."""
    assert collapsed([0.5, 0.8, 0.3], 0.2)
    assert not collapsed([0.5, 0.8, 0.6], 0.2)  # 0.4 of 0.6
    assert not collapsed([0.2, 0.8], 0.2)


def test_short_trainings_are_not_judged():
    """Two windows are needed: one that was good and one that is not."""
    assert collapsed([0.9] * 5 + [0.3] * 5, 0.2, window=5)
    assert not collapsed([0.9] * 5 + [0.3] * 4, 0.2, window=5)


def test_where_it_was_best_and_where_it_ended():
    assert collapsed([0.2, 0.8, 0.9, 0.3, 0.2], 0.2, window=2) == (2, pytest.approx(0.85), pytest.approx(0.25))


def test_chance_counts():
    """From 65 to 55 % two ninths of what is above a chance of 20 % are lost, and two thirds of what is above 50 %."""
    assert not collapsed([0.65, 0.55], 0.2)
    assert collapsed([0.65, 0.55], 0.5)
