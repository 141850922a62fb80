import json
import re
from html import unescape

from arelu_meta.reporting.line_plot import legend, line_plot
from arelu_meta.reporting.looks import Look
from arelu_meta.reporting.series import LineChart, Point

LOOK = Look("arelu", "", 1, "", True)


def chart(*points: Point, log: bool = False) -> LineChart:
    return LineChart("key", "test/accuracy", "training step", "test/accuracy", {"arelu": list(points)}, log)


def test_values_for_the_pointer():
    text = line_plot(
        chart(Point(0, 20.0, 19.0, 21.0, 5), Point(10, 30.123456, float("nan"), float("nan"), 1)), [LOOK], "s0"
    )
    points = json.loads(unescape(re.search(r'data-points="([^"]*)"', text)[1]))
    assert points == [[0.0, 20.0, 19.0, 21.0], [10.0, 30.123, None, None]]
    assert "<h3>test/accuracy (%)</h3>" in text
    assert "n = 1 to 5 seeds" in text


def test_a_line_from_corner_to_corner():
    """x from 0 to 10 with 2 % room: at 20 / 1040 and 1020 / 1040 of 1000."""
    text = line_plot(chart(Point(0, 1.0, 1.0, 1.0, 2), Point(10, 2.0, 2.0, 2.0, 2)), [LOOK], "s0")
    places = re.search(r'<polyline points="([^"]*)"', text)[1].split()
    assert places == ["19.2,963.0", "980.8,37.0"]
    assert text.count("<circle") == 2


def test_powers_of_ten():
    text = line_plot(
        chart(Point(0.001, 1, 1, 1, 2), Point(0.01, 1, 1, 1, 2), Point(0.1, 2, 2, 2, 2), log=True), [LOOK], "s0"
    )
    places = [float(place.split(",")[0]) for place in re.search(r'<polyline points="([^"]*)"', text)[1].split()]
    assert round(places[1] - places[0], 1) == round(places[2] - places[1], 1)


def test_those_behind_are_off_at_first():
    text = legend([LOOK, Look("elu", "", 2, "6 3", False)], "s0")
    assert 'id="s0-0" checked' in text
    assert 'id="s0-1">' in text
