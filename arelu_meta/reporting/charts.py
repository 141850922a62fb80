"""The figures of a report as files: dots per seed with mean and interval, paired differences, lines with bands."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from arelu_meta.analysis.arms import Comparison
from arelu_meta.analysis.estimates import Estimate
from arelu_meta.analysis.findings import Findings
from arelu_meta.pictures.palette import COLOURS
from arelu_meta.reporting.content import Content
from arelu_meta.reporting.looks import Look, looks
from arelu_meta.reporting.numbers import Numbers
from arelu_meta.reporting.series import LineChart, curves, over_rates

STYLES: dict[str, str | tuple[int, tuple[int, ...]]] = {"": "-", "6 3": "--", "2 2": ":", "8 3 2 3": "-."}


def _plain(text: str) -> str:
    """Keep a dollar sign what it is; two of them would be taken for mathematics."""
    return text.replace("$", r"\$")


def figures(said: Content) -> dict[str, tuple[Figure, str]]:
    """All figures of a report with their captions, by the name of their file."""
    findings, found = said.analysis.findings, {}
    judged, drawn = said.analysis.judged, looks(said.analysis)
    for number, comparison in enumerate(judged, 1):
        place = f"-{number}" if len(judged) > 1 else ""
        about = f" ({comparison.label})" if comparison.label else ""
        caption = f"{findings.metric} of every seed, and differences to {findings.baseline}{about}"
        found[f"arms{place}"] = dots_figure(findings, comparison, drawn, said.numbers), caption
        for chart in curves(findings, comparison):
            found[f"curve-{chart.key}{place}"] = lines_figure(chart, drawn), f"{chart.title}{about}"
    for chart in over_rates(said.analysis):
        found[chart.key] = lines_figure(chart, drawn), chart.title
    return found


def dots_figure(findings: Findings, comparison: Comparison, drawn: Sequence[Look], numbers: Numbers) -> Figure:
    """Every seed of every arm on the left, its paired differences to the baseline on the right."""
    arms = comparison.arms
    paired = any(arm.difference is not None for arm in arms)
    figure = Figure(figsize=(10 if paired else 6.5, 1.4 + 0.42 * len(arms)), layout="constrained")
    sides = figure.subplots(1, 2 if paired else 1, sharey=True, squeeze=False)[0]
    colours = {look.name: COLOURS[look.colour] if look.in_front else "0.45" for look in drawn}
    for row, arm in enumerate(arms):
        _dots(sides[0], row, arm.values.to_numpy(), arm.estimate, colours[arm.name])
        if arm.difference is not None:
            _dots(sides[1], row, arm.difference.differences.to_numpy(), arm.difference.estimate, colours[arm.name])
    baseline = comparison.arm(findings.baseline)
    if baseline is not None and math.isfinite(baseline.estimate.mean):
        sides[0].axvline(baseline.estimate.mean, color="0.4", linewidth=1, linestyle="--", zorder=0)
    unit = f" ({numbers.unit})" if numbers.unit else ""
    sides[0].set(xlabel=_plain(f"{findings.metric}{unit}"))
    sides[0].set_yticks(range(len(arms)), [_plain(f"{arm.name} (n = {arm.estimate.n})") for arm in arms])
    sides[0].set_ylim(len(arms) - 0.5, -0.5)
    if paired:
        sides[1].axvline(0, color="0.4", linewidth=1, linestyle="--", zorder=0)
        points = f" ({numbers.points})" if numbers.points else ""
        sides[1].set(xlabel=_plain(f"difference to {findings.baseline}, seed by seed{points}"))
    for side in sides:
        side.grid(axis="x", alpha=0.3)
        side.tick_params(axis="y", length=0)
    title = ": ".join(part for part in (findings.title, comparison.label) if part)
    figure.suptitle(f"{_plain(title)}\npoints are seeds, diamonds means, bars 95 % t intervals", fontsize="medium")
    return figure


def _dots(axes: Axes, row: int, values: np.ndarray, estimate: Estimate, colour: str) -> None:
    if not len(values):
        axes.text(0.5, row, "no result", transform=axes.get_yaxis_transform(), ha="center", va="center", color="0.4")
        return
    axes.plot(values, np.full(len(values), row), "o", color=colour, alpha=0.45, markersize=4.5, markeredgewidth=0)
    if math.isfinite(estimate.low):
        axes.plot([estimate.low, estimate.high], [row, row], color=colour, linewidth=2, alpha=0.9)
    axes.plot([estimate.mean], [row], "D", color=colour, markersize=6, markeredgecolor="white", markeredgewidth=0.8)


def lines_figure(chart: LineChart, drawn: Sequence[Look]) -> Figure:
    """Means over seeds with the band of their 95 % intervals; arms beyond the first seven in grey."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    handles: dict[str, Line2D] = {}
    for order, look in enumerate(reversed(drawn)):
        points = chart.lines.get(look.name)
        if not points:
            continue
        colour = COLOURS[look.colour] if look.in_front else "0.75"
        x = [point.x for point in points]
        (line,) = axes.plot(
            x,
            [point.mean for point in points],
            color=colour,
            linestyle=STYLES[look.dash] if look.in_front else "-",
            linewidth=1.8 if look.in_front else 0.9,
            marker="o" if len(points) < 15 else None,
            markersize=3.5,
            zorder=2 + order,
        )
        if look.in_front:
            handles[_plain(look.name)] = line
            low, high = [point.low for point in points], [point.high for point in points]
            axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    if chart.steps:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if chart.log:
        axes.set_xscale("log")
    behind = sum(not look.in_front and look.name in chart.lines for look in drawn)
    grey = f"; {behind} more arms in grey" if behind else ""
    unit = f" ({chart.unit})" if chart.unit else ""
    axes.set(xlabel=_plain(chart.xlabel), ylabel=_plain(f"{chart.ylabel}{unit}"))
    axes.set_title(f"{_plain(chart.title)}\nmean and 95 % t interval over {chart.seeds}{grey}", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend([*handles.values()][::-1], [*handles][::-1], frameon=False, fontsize="small")
    return figure
