"""Lines with bands on the page; arms are switched on and off by the boxes of their legend, without any script."""

import json
import math

from arelu_meta.reporting.looks import Look
from arelu_meta.reporting.markup import Markup, tag
from arelu_meta.reporting.scale import Scale
from arelu_meta.reporting.series import LineChart, Point

MARKED = 15  # a line of fewer points shows where they are


def line_plot(chart: LineChart, looks: list[Look], group: str) -> Markup:
    """Draw a chart. Lines live in a box of 1000 by 1000 that is stretched to the screen; text stays as it is."""
    points = [point for line in chart.lines.values() for point in line]
    across = Scale.around([point.x for point in points], log=chart.log, whole=chart.steps, margin=0.02)
    ends = [value for point in points for value in (point.mean, *_ends(point, points))]
    up = Scale.around(ends)
    rules = [tag("line", x1="0", x2="1000", y1=_y(up, tick), y2=_y(up, tick), class_="tick") for tick in up.ticks()]
    lines = [
        _line(chart.lines[look.name], look, f"{group}-{number}", across, up)
        for number, look in enumerate(looks)
        if look.name in chart.lines
    ]
    label = f"{chart.title} over {chart.xlabel}: " + "; ".join(
        f"{look.name} ends at {chart.lines[look.name][-1].mean:.4g}" for look in looks if look.name in chart.lines
    )
    drawing = tag(
        "svg",
        *rules,
        *reversed(lines),
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    marks = [
        _marks(chart.lines[look.name], look, f"{group}-{number}", across, up)
        for number, look in enumerate(looks)
        if len(chart.lines.get(look.name, ())) in range(1, MARKED)
    ]
    area = tag(
        "div",
        drawing,
        *([tag("svg", *marks, aria_hidden="true")] if marks else []),
        *(tag("span", text, class_="y", style=f"bottom:{up.place(tick):.2f}%") for tick, text in up.written()),
        *(tag("span", text, class_="x", style=f"left:{across.place(tick):.2f}%") for tick, text in across.written()),
        class_="area",
        data_scale=json.dumps([across.low, across.high, across.log]),
        data_x=chart.xlabel,
    )
    title = f"{chart.title}{f' ({chart.unit})' if chart.unit else ''}"
    return tag(
        "figure",
        tag("h3", title),
        tag("div", area, class_="lines"),
        tag("div", chart.xlabel, class_="label"),
        tag("figcaption", f"Mean and 95 % t interval over {chart.seeds}."),
    )


def legend(looks: list[Look], group: str) -> Markup:
    """Boxes that switch arms on and off, with the sample of each line."""
    boxes = []
    for number, look in enumerate(looks):
        sample = tag(
            "svg", tag("line", x1=0, x2=26, y1=5, y2=5, class_="line", stroke_dasharray=look.dash), class_="sample"
        )
        box = tag("input", type="checkbox", id=f"{group}-{number}", checked=look.in_front)
        boxes.append(tag("label", box, sample, look.name, class_=f"c{look.colour}"))
    switches = "".join(
        f"section:has(#{group}-{number}:not(:checked)) .{group}-{number}{{display:none}}"
        for number in range(len(looks))
    )
    return tag("fieldset", tag("legend", "arms shown"), *boxes, tag("style", Markup(switches)), class_="arms")


def _y(scale: Scale, value: float) -> float:
    return 1000 - 10 * scale.place(value)


def _ends(point: Point, points: list[Point]) -> tuple[float, ...]:
    """The ends of an interval, as far as they do not squeeze the means together."""
    means = [other.mean for other in points]
    low, high = min(means), max(means)
    reach = (high - low) / 2
    return tuple(end for end in (point.low, point.high) if low - reach <= end <= high + reach)


def _line(points: list[Point], look: Look, group: str, across: Scale, up: Scale) -> Markup:
    places = [(10 * across.place(point.x), point) for point in points]
    banded = [(x, point) for x, point in places if math.isfinite(point.low)]
    band = " ".join(
        f"{x:.1f},{_y(up, end):.1f}"
        for x, end in [(x, point.high) for x, point in banded] + [(x, point.low) for x, point in reversed(banded)]
    )
    path = " ".join(f"{x:.1f},{_y(up, point.mean):.1f}" for x, point in places)
    rounded = [[_short(value) for value in (point.x, point.mean, point.low, point.high)] for point in points]
    return tag(
        "g",
        *([tag("polygon", points=band, class_="band")] if banded else []),
        tag("polyline", points=path, class_="line", stroke_dasharray=look.dash),
        class_=f"c{look.colour} {group}",
        data_arm=look.name,
        data_points=json.dumps(rounded),
    )


def _marks(points: list[Point], look: Look, group: str, across: Scale, up: Scale) -> Markup:
    """Circles in per cent of the screen, which no stretching makes ovals of."""
    places = ((across.place(point.x), 100 - up.place(point.mean)) for point in points)
    circles = (tag("circle", cx=f"{x:.2f}%", cy=f"{y:.2f}%", r=3) for x, y in places)
    return tag("g", *circles, class_=f"mark c{look.colour} {group}")


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
