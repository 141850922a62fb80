"""The control-arm figure of the page: a strip per arm with its seeds, mean and interval, beside its differences."""

import math
from collections.abc import Callable

import pandas as pd

from arelu_meta.analysis.arms import Arm, Comparison
from arelu_meta.analysis.estimates import Estimate
from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.looks import Look
from arelu_meta.reporting.markup import Markup, tag
from arelu_meta.reporting.numbers import Numbers
from arelu_meta.reporting.scale import Scale

MIDDLE = 17  # of a strip of 34 pixels


def dot_plot(findings: Findings, comparison: Comparison, looks: list[Look], numbers: Numbers) -> Markup:
    """Draw the arms below each other. Places are per cent, so that text keeps its size on any screen."""
    arms = comparison.arms
    values = _scale([(arm.values, arm.estimate) for arm in arms])
    pairs = [(arm.difference.differences, arm.difference.estimate) for arm in arms if arm.difference is not None]
    differences = _scale([*pairs, (pd.Series([0.0]), Estimate(0.0, 0.0, 0.0, 0))]) if pairs else None
    baseline = comparison.arm(findings.baseline)
    line = baseline.estimate.mean if baseline is not None else math.nan
    by_name = {look.name: look for look in looks}
    rows = [_row(arm, by_name[arm.name], values, differences, line, numbers) for arm in arms]
    unit = f" ({numbers.unit})" if numbers.unit else ""
    points = f" ({numbers.points})" if numbers.points else ""
    axes = [tag("div", class_="name"), _axis(values, f"{findings.metric}{unit}")]
    if differences is not None:
        axes.append(_axis(differences, f"difference to {findings.baseline}{points}"))
    caption = (
        f"Points are seeds, diamonds means, bars 95 % t intervals ({comparison.seeds}). The dashed line is"
        f" {findings.baseline}; on the right, differences to it on the same seed."
    )
    return tag(
        "figure",
        tag("div", *rows, tag("div", *axes, class_="row axis"), class_="dots" if differences else "dots single"),
        tag("figcaption", caption),
    )


def _scale(pairs: list[tuple[pd.Series, Estimate]]) -> Scale:
    """Cover all points, and intervals as far as they do not squeeze the points together."""
    points = [float(value) for values, _ in pairs for value in values]
    if not points:
        return Scale.around([])
    reach = max(points) - min(points)
    ends = [end for _, one in pairs for end in (one.low, one.high) if math.isfinite(end)]
    inside = [end for end in ends if min(points) - reach <= end <= max(points) + reach]
    return Scale.around([*points, *inside])


def _row(arm: Arm, look: Look, values: Scale, differences: Scale | None, line: float, numbers: Numbers) -> Markup:
    name = tag("div", tag("b", arm.name), " ", tag("small", look.role or f"n = {arm.estimate.n}"), class_="name")
    described = f"{arm.name}: mean {numbers.with_interval(arm.estimate)} {numbers.unit}, n = {arm.estimate.n}"
    cells = [name, _strip(arm.values, arm.estimate, values, line, described, numbers.value)]
    if differences is not None:
        pair = arm.difference
        if pair is None:
            cells.append(tag("svg", *_rules(differences, 0.0), class_="strip", aria_hidden="true"))
        else:
            size = f"{numbers.signed_with_interval(pair.estimate)} {numbers.points}"
            described = f"{arm.name}: difference {size}, n = {pair.n}"
            cells.append(_strip(pair.differences, pair.estimate, differences, 0.0, described, numbers.signed))
    return tag("div", *cells, class_=f"row c{look.colour}" if look.in_front else "row rest")


def _strip(
    values: pd.Series, estimate: Estimate, scale: Scale, line: float, described: str, write: Callable[[float], str]
) -> Markup:
    parts = _rules(scale, line)
    if math.isfinite(estimate.low):
        ends = {"x1": _percent(scale.place(estimate.low)), "x2": _percent(scale.place(estimate.high))}
        parts.append(tag("line", tag("title", described), **ends, y1=MIDDLE, y2=MIDDLE, class_="bar"))
    for seed, value in values.items():
        shown = tag("title", f"seed {seed}: {write(float(value))}")
        place = _percent(scale.place(float(value)))
        parts.append(tag("circle", shown, cx=place, cy=MIDDLE, r=4, class_="dot", data_seed=str(seed)))
    if math.isfinite(estimate.mean):
        diamond = tag("path", tag("title", described), d="M0-7 7 0 0 7-7 0Z", class_="mean")
        parts.append(tag("svg", diamond, x=_percent(scale.place(estimate.mean)), y=MIDDLE, overflow="visible"))
    return tag("svg", *parts, class_="strip", role="img", aria_label=described)


def _rules(scale: Scale, line: float) -> list[Markup]:
    ticks = [_vertical(tick, scale, "tick") for tick in scale.ticks()]
    return [*ticks, _vertical(line, scale, "base")] if math.isfinite(line) else ticks


def _vertical(value: float, scale: Scale, kind: str) -> Markup:
    place = _percent(scale.place(value))
    return tag("line", x1=place, x2=place, y1="0", y2="100%", class_=kind)


def _percent(place: float) -> str:
    return f"{place:.2f}%"


def _axis(scale: Scale, label: str) -> Markup:
    ticks = [tag("span", text, style=f"left:{scale.place(tick):.2f}%") for tick, text in scale.written()]
    return tag("div", tag("div", *ticks, class_="ticks"), tag("div", label, class_="label"))
