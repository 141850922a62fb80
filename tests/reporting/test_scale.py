import math

import pytest

from arelu_meta.reporting.scale import Scale


def test_places():
    scale = Scale.around([10.0, 20.0], margin=0.0)
    assert [scale.place(value) for value in (10, 15, 20, 25)] == [0, 50, 100, 150]
    log = Scale.around([0.001, 0.1], log=True, margin=0.0)
    assert [log.place(value) for value in (0.001, 0.01, 0.1)] == pytest.approx([0, 50, 100])


def test_ticks_lie_inside_and_say_what_they_are():
    """Steps of 2.5 need a decimal: 78 would be a wrong label for 77.5."""
    scale = Scale(74.0, 84.0)
    for tick, text in scale.written(4):
        assert 74 <= tick <= 84
        assert float(text) == tick
    assert [text for _, text in Scale(-3.0, -1.0, log=True).written()] == ["0.001", "0.01", "0.1"]
    assert all(tick == round(tick) for tick in Scale(0.0, 5.2, whole=True).ticks())


@pytest.mark.parametrize("values", [[], [math.nan], [0.0], [7.0], [-7.0, -7.0]])
def test_few_values(values: list[float]):
    scale = Scale.around(values)
    assert scale.high > scale.low
    assert scale.ticks()
