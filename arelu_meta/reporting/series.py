"""What line charts show: curves over training or adaptation, results over learning rates, and the style of each arm."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from arelu_meta.analysis.arms import Analysis, ArmComparison
from arelu_meta.analysis.controls import explained_arm
from arelu_meta.analysis.estimates import Estimate, estimate_mean
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import same_value, setting_label, tuned_axes, value_text
from arelu_meta.reporting.table import arm_role

MAX_POINTS = 200
MAX_IN_FRONT = 7
DASHES = ("", "6 3", "2 2", "8 3 2 3")
COLOUR_ORDER = (6, 1, 0, 2, 3, 4, 5)  # classes of figure.css: black for the baseline, vermilion for the explained arm


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn, the same in every figure."""

    number: int
    name: str
    role: str
    colour: int
    dash: str
    in_front: bool
    """Whether it has a colour to itself, and is shown from the start where many lines would cover each other."""


def arm_styles(analysis: Analysis) -> list[ArmStyle]:
    """Baseline, explained arm, controls, then the others from the best on, by their ranks in all comparisons."""
    findings, comparisons = analysis.findings, analysis.primary
    ranks: dict[str, list[int]] = {}
    for comparison in comparisons:
        for rank, arm in enumerate(comparison.arms):
            ranks.setdefault(arm.name, []).append(rank)
    best = sorted(ranks, key=lambda name: sum(ranks[name]) / len(ranks[name]))
    subjects = [explained_arm(findings, comparison) for comparison in comparisons]
    first = [name for name in (findings.baseline, *subjects, *findings.controls) if name in ranks]
    styles = []
    for number, name in enumerate(dict.fromkeys([*filter(None, first), *best])):
        dash = DASHES[number // MAX_IN_FRONT % len(DASHES)]
        colour = COLOUR_ORDER[number % len(COLOUR_ORDER)]
        styles.append(ArmStyle(number, name, arm_role(findings, name), colour, dash, number < MAX_IN_FRONT))
    return styles


@dataclass(frozen=True)
class LineChart:
    """Lines of arms over one quantity."""

    key: str
    """For file names."""
    title: str
    xlabel: str
    unit: str
    lines: dict[str, list[tuple[float, Estimate]]]
    """By arm: places on the x axis, each with the mean over seeds and its 95 % interval."""
    log: bool = False
    steps: bool = False
    """Whether the quantity is counted."""


def curve_charts(findings: Findings, comparison: ArmComparison) -> list[LineChart]:
    """A chart per metric that curves were logged of, each arm at its setting; thinned out to what a figure can show."""
    table = findings.curves
    if table is None or table.empty:
        return []
    charts = []
    table = table.assign(**{findings.arm: [value_text(value) for value in table[findings.arm]]})
    for metric, rows in table.groupby("metric", sort=False):
        lines = {}
        for arm in comparison.arms:
            own = rows[rows[findings.arm] == arm.name]
            for axis, value in arm.setting:
                fits = {one for one in own[axis].unique() if same_value(one, value)}
                own = own[own[axis].isin(fits)]
            values = own.pivot_table(index="step", columns="seed", values="value", aggfunc="last", dropna=False)
            values = values.dropna()  # steps that all seeds of the arm reached
            if len(values) > MAX_POINTS:
                values = values.iloc[np.unique(np.linspace(0, len(values) - 1, MAX_POINTS).round().astype(int))]
            points = [(float(step), estimate_mean(row.to_numpy(dtype=float))) for step, row in values.iterrows()]
            finite = [(step, estimate) for step, estimate in points if math.isfinite(estimate.mean)]
            if finite:
                lines[arm.name] = finite
        if lines:
            step = "training step" if metric.endswith("/loss_by_step") else findings.step
            step = "inner step" if "inner_step" in metric else step
            unit = findings.units.get(metric, "")
            charts.append(LineChart(file_name(metric), metric, step, unit, lines, steps=True))
    return charts


def rate_charts(analysis: Analysis) -> list[LineChart]:
    """The tested metric over the tuned axis, where there is one and it is a number; a chart per other setting."""
    findings, axes = analysis.findings, tuned_axes(analysis.findings)
    if len(axes) != 1 or not pd.api.types.is_numeric_dtype(findings.runs[axes[0]]):
        return []
    positive = bool((findings.runs[axes[0]] > 0).all())
    unit = findings.units.get(findings.metric, "")
    charts: dict[str, LineChart] = {}
    for comparison in analysis.fixed:
        rate = float(dict(comparison.setting)[axes[0]])
        others = setting_label(tuple(pair for pair in comparison.setting if pair[0] != axes[0]))
        key = file_name(f"over {axes[0]} {others}")
        title = f"{findings.metric} over {axes[0]}" + (f", {others}" if others else "")
        chart = charts.setdefault(key, LineChart(key, title, axes[0], unit, {}, log=positive))
        for arm in comparison.arms:
            if math.isfinite(arm.estimate.mean):
                chart.lines.setdefault(arm.name, []).append((rate, arm.estimate))
    for chart in charts.values():
        for points in chart.lines.values():
            points.sort(key=lambda point: point[0])
    return [chart for chart in charts.values() if any(len(points) > 1 for points in chart.lines.values())]


def file_name(name: str) -> str:
    """Turn the name of a metric into a part of a file name.

    >>> file_name("test/accuracy_by_inner_step")
    'test-accuracy_by_inner_step'
    """
    return "".join(sign if sign.isalnum() or sign in "_.-" else "-" for sign in name).strip("-")
