"""The geometry of a report's figures, drawn once: the templates arrange the same shapes on the page and in files.

Places are per cent of the drawing area, so that text keeps its size on any screen; lines, which SVG does not take in
per cent, live in a box of 1000 by 1000 that is stretched to the area.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.ticker import MaxNLocator

from arelu_meta.analysis.arms import Arm, ArmComparison
from arelu_meta.analysis.estimates import Estimate
from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.content import Report
from arelu_meta.reporting.numbers import NumberFormat
from arelu_meta.reporting.series import ArmStyle, LineChart, arm_styles, curve_charts, rate_charts

MARKED_BELOW = 15  # a line of fewer points shows where they are


@dataclass(frozen=True)
class Scale:
    """A numeric axis, from the value at the left (or bottom) end to the one at the right (or top)."""

    low: float
    high: float
    log: bool = False
    whole: bool = False
    """Whether only whole numbers have a meaning: there is no half step."""

    @classmethod
    def covering(
        cls, values: Iterable[float], *, log: bool = False, whole: bool = False, margin: float = 0.04
    ) -> "Scale":
        """Cover all finite values with a margin; a single value gets room to both sides.

        >>> Scale.covering([0.0, 10.0], margin=0.1)
        Scale(low=-1.0, high=11.0, log=False, whole=False)
        """
        finite = [math.log10(value) if log else value for value in values if math.isfinite(value)]
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        room = margin * (high - low) if high > low else 0.5 * abs(high) or 0.5
        return cls(low - room, high + room, log, whole)

    def percent(self, value: float) -> float:
        """Where a value lies, from the low end: below 0 and above 100 for values outside."""
        shown = math.log10(value) if self.log else value
        return 100 * (shown - self.low) / (self.high - self.low)

    def ticks(self, max_ticks: int = 5) -> list[tuple[float, str]]:
        """Round numbers inside (whole powers of ten on a logarithmic axis) with labels of the same digits."""
        if self.log:
            powers = range(math.ceil(self.low), math.floor(self.high) + 1)
            return [(10.0**power, f"{10.0**power:g}") for power in powers]
        places = (float(tick) for tick in MaxNLocator(max_ticks, integer=self.whole).tick_values(self.low, self.high))
        ticks = [tick for tick in places if self.low <= tick <= self.high]
        decimals = next((d for d in range(6) if all(math.isclose(t, round(t, d), abs_tol=1e-9) for t in ticks)), 6)
        return [(tick, f"{tick:.{decimals}f}".replace("-", "\N{MINUS SIGN}")) for tick in ticks]

    def tick_places(self) -> list[tuple[float, str]]:
        """The ticks' places in per cent with their labels."""
        return [(self.percent(tick), text) for tick, text in self.ticks()]


@dataclass(frozen=True)
class Strip:
    """One arm's seeds, mean and interval on a line; places in per cent."""

    label: str
    ticks: list[float]
    line: float | None
    """Where the baseline is."""
    bar: tuple[float, float] | None = None
    dots: tuple[tuple[int, float, str], ...] = ()
    """Seed, place and what is written at it."""
    mean: float | None = None


@dataclass(frozen=True)
class DotPlot:
    """A strip per arm with its seeds, mean and interval, beside its differences to the baseline."""

    name: str
    title: str
    caption: str
    legend: str
    rows: tuple[tuple[ArmStyle, int, list[Strip]], ...]
    """Style, number of seeds and strips of each arm."""
    axes: list[tuple[str, list[tuple[float, str]]]]
    """Label and ticks of each column of strips."""


@dataclass(frozen=True)
class Line:
    """One arm's mean with its band; coordinates in the box of 1000 by 1000, marks in per cent."""

    style: ArmStyle
    path: str
    band: str
    points: str
    """JSON: x, mean and ends of the interval, for the values under the pointer."""
    marks: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class LinePlot:
    """Means over seeds with the band of their 95 % intervals."""

    name: str
    title: str
    caption: str
    legend: str
    xlabel: str
    label: str
    """For readers that do not see the picture."""
    scale: str
    """JSON: ends of the x axis and whether it is logarithmic."""
    lines: tuple[Line, ...]
    xticks: list[tuple[float, str]]
    yticks: list[tuple[float, str]]


@dataclass(frozen=True)
class Figures:
    """All figures of a report."""

    styles: list[ArmStyle]
    dots: tuple[DotPlot, ...]
    """One per primary comparison."""
    curves: tuple[tuple[LinePlot, ...], ...]
    """Those of each primary comparison."""
    rates: tuple[LinePlot, ...]

    @property
    def all(self) -> list[DotPlot | LinePlot]:
        """In the order they are read."""
        plots: list[DotPlot | LinePlot] = []
        for dots, curves in zip(self.dots, self.curves, strict=True):
            plots += [dots, *curves]
        return [*plots, *self.rates]


def draw_figures(report: Report) -> Figures:
    """Draw every figure of a report."""
    findings, primary = report.analysis.findings, report.analysis.primary
    styles = arm_styles(report.analysis)
    dots, curves = [], []
    for number, comparison in enumerate(primary, 1):
        suffix = f"-{number}" if len(primary) > 1 else ""
        about = f" ({comparison.label})" if comparison.label else ""
        charts = curve_charts(findings, comparison)
        dots.append(dot_plot(findings, comparison, styles, report.numbers, suffix))
        curves.append(tuple(line_plot(one, styles, f"curve-{one.key}{suffix}", about) for one in charts))
    rates = tuple(line_plot(chart, styles, chart.key) for chart in rate_charts(report.analysis)) if primary else ()
    return Figures(styles, tuple(dots), tuple(curves), rates)


def dot_plot(
    findings: Findings, comparison: ArmComparison, styles: Sequence[ArmStyle], numbers: NumberFormat, suffix: str = ""
) -> DotPlot:
    """Draw the arms below each other: every seed on the left, its paired differences to the baseline on the right."""
    arms, baseline = comparison.arms, comparison.arm(findings.baseline)
    values = _scale([(arm.results.dropna(), arm.estimate) for arm in arms])
    line = baseline.estimate.mean if baseline is not None else math.nan
    axes = [(f"{findings.metric}{f' ({numbers.unit})' if numbers.unit else ''}", values.tick_places())]
    pairs = [(arm.test.difference.differences, arm.test.interval) for arm in arms if arm.test is not None]
    differences = _scale([*pairs, (pd.Series([0.0]), Estimate(0.0, 0.0, 0.0, 0))]) if pairs else None
    if differences is not None:
        unit = f" ({numbers.difference_unit})" if numbers.difference_unit else ""
        axes.append((f"difference to {findings.baseline}{unit}", differences.tick_places()))
    by_name = {style.name: style for style in styles}
    rows = tuple((by_name[arm.name], arm.estimate.n, _strips(arm, values, line, differences, numbers)) for arm in arms)
    failed = " of the trainings that learned" if any(arm.mixed for arm in arms) else ""
    legend = f"Points are seeds, diamonds means{failed}, bars 95 % t intervals ({comparison.seeds})."
    if differences is not None:
        legend += f" The dashed line is {findings.baseline}; on the right, differences to it on the same seed."
    about = f" ({comparison.label})" if comparison.label else ""
    caption = f"{findings.metric} of every seed, and differences to {findings.baseline}{about}"
    title = ": ".join(text for text in (findings.title, comparison.label) if text)
    return DotPlot(f"arms{suffix}", title, caption, legend, rows, axes)


def _scale(pairs: list[tuple[pd.Series, Estimate]]) -> Scale:
    """Cover all points, and intervals as far as they do not squeeze the points together."""
    points = [float(value) for values, _ in pairs for value in values]
    reach = max(points) - min(points) if points else 0.0
    ends = [end for _, one in pairs for end in (one.low, one.high) if math.isfinite(end)]
    inside = [end for end in ends if points and min(points) - reach <= end <= max(points) + reach]
    return Scale.covering([*points, *inside])


def _strips(arm: Arm, values: Scale, line: float, differences: Scale | None, numbers: NumberFormat) -> list[Strip]:
    """The strip of an arm's values, and, where there is a baseline, that of its differences."""
    described = f"{arm.name}: mean {numbers.with_interval(arm.estimate)} {numbers.unit}, n = {arm.estimate.n}"
    strips = [_strip(arm.results.dropna(), arm.estimate, values, line, described, numbers.value)]
    if differences is not None and arm.test is not None:
        pair, interval = arm.test.difference, arm.test.interval
        size = f"{numbers.with_interval(interval, signed=True)} {numbers.difference_unit}"
        described = f"{arm.name}: difference {size}, n = {pair.n}"
        strips.append(_strip(pair.differences, interval, differences, 0.0, described, numbers.signed))
    elif differences is not None:  # the baseline itself
        strips.append(Strip("", [place for place, _ in differences.tick_places()], differences.percent(0.0)))
    return strips


def _strip(
    values: pd.Series, estimate: Estimate, scale: Scale, line: float, label: str, write: Callable[[float], str]
) -> Strip:
    bar = (scale.percent(estimate.low), scale.percent(estimate.high)) if math.isfinite(estimate.low) else None
    dots = ((int(seed), scale.percent(float(value)), write(float(value))) for seed, value in values.items())
    return Strip(
        label=label,
        ticks=[place for place, _ in scale.tick_places()],
        line=scale.percent(line) if math.isfinite(line) else None,
        bar=bar,
        dots=tuple((seed, place, f"seed {seed}: {written}") for seed, place, written in dots),
        mean=scale.percent(estimate.mean) if math.isfinite(estimate.mean) else None,
    )


def line_plot(chart: LineChart, styles: Sequence[ArmStyle], name: str, about: str = "") -> LinePlot:
    """Draw a chart; `about` is added to its caption."""
    points = [point for line in chart.lines.values() for point in line]
    means, sizes = [one.mean for _, one in points], {one.n for _, one in points}
    seeds = f"n = {min(sizes)}" + (f" to {max(sizes)}" if len(sizes) > 1 else "") + " seeds"
    low, high = min(means), max(means)
    reach = (high - low) / 2  # ends of intervals count as far as they do not squeeze the means together
    ends = [end for _, one in points for end in (one.low, one.high) if low - reach <= end <= high + reach]
    across = Scale.covering([x for x, _ in points], log=chart.log, whole=chart.steps, margin=0.02)
    up = Scale.covering([*means, *ends])
    drawn = [style for style in styles if style.name in chart.lines]
    last = "; ".join(f"{style.name} ends at {chart.lines[style.name][-1][1].mean:.4g}" for style in drawn)
    return LinePlot(
        name=name,
        title=f"{chart.title}{f' ({chart.unit})' if chart.unit else ''}",
        caption=f"{chart.title}{about}",
        legend=f"Mean and 95 % t interval over {seeds}.",
        xlabel=chart.xlabel,
        label=f"{chart.title} over {chart.xlabel}: {last}",
        scale=json.dumps([across.low, across.high, across.log]),
        lines=tuple(_line(chart.lines[style.name], style, across, up) for style in drawn),
        xticks=across.tick_places(),
        yticks=up.tick_places(),
    )


def _line(points: list[tuple[float, Estimate]], style: ArmStyle, across: Scale, up: Scale) -> Line:
    places = [(10 * across.percent(x), one) for x, one in points]
    banded = [(x, one) for x, one in places if math.isfinite(one.low)]
    band = [(x, one.high) for x, one in banded] + [(x, one.low) for x, one in reversed(banded)]
    path = [(x, one.mean) for x, one in places]
    band_text, path_text = (
        " ".join(f"{x:.1f},{1000 - 10 * up.percent(y):.1f}" for x, y in corners) for corners in (band, path)
    )
    values = ((x, one.mean, one.low, one.high) for x, one in points)
    rounded = [[float(f"{value:.5g}") if math.isfinite(value) else None for value in row] for row in values]
    marked = points if len(points) < MARKED_BELOW else []
    marks = [(across.percent(x), 100 - up.percent(one.mean)) for x, one in marked]
    return Line(style, path_text, band_text, json.dumps(rounded), tuple(marks))
