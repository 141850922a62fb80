"""Lines with bands: curves over training or adaptation, and results over learning rates."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from arelu_meta.analysis.analyse import Analysis
from arelu_meta.analysis.arms import Comparison
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.paired import estimate
from arelu_meta.analysis.settings import same, text, tuned_axes
from arelu_meta.reporting.numbers import unit_of

MOST_POINTS = 200


@dataclass(frozen=True)
class Point:
    """A mean over seeds at one place, with its 95 % interval."""

    x: float
    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class LineChart:
    """Lines of arms over one quantity."""

    key: str
    """For file names."""
    title: str
    xlabel: str
    ylabel: str
    lines: dict[str, list[Point]]
    log: bool = False
    steps: bool = False
    """Whether the quantity is counted."""

    @property
    def unit(self) -> str:
        """The unit of the values."""
        return unit_of(self.ylabel, (point.mean for points in self.lines.values() for point in points))

    @property
    def seeds(self) -> str:
        """How many seeds stand behind the points."""
        sizes = {point.n for points in self.lines.values() for point in points}
        return f"n = {min(sizes)}" + (f" to {max(sizes)}" if len(sizes) > 1 else "") + " seeds" if sizes else "n = 0"


def curves(findings: Findings, comparison: Comparison) -> list[LineChart]:
    """A chart per metric that curves were kept of, each arm at its setting."""
    table = findings.curves
    if table is None or table.empty:
        return []
    charts = []
    table = table.assign(**{findings.arm: [text(value) for value in table[findings.arm]]})
    for metric, rows in table.groupby("metric", sort=False):
        lines = {}
        for arm in comparison.arms:
            own = rows[rows[findings.arm] == arm.name]
            for axis, value in arm.setting:
                fits = {one for one in own[axis].unique() if same(one, value)}
                own = own[own[axis].isin(fits)]
            points = _points(own)
            if points:
                lines[arm.name] = points
        if lines:
            step = "inner step" if "inner_step" in str(metric) else findings.step
            charts.append(LineChart(_key(str(metric)), str(metric), step, str(metric), lines, steps=True))
    return charts


def _points(rows: pd.DataFrame) -> list[Point]:
    """Mean and interval at every step that all seeds of the arm reached; thinned out to what a figure can show."""
    table = rows.pivot_table(index="step", columns="seed", values="value", aggfunc="last", dropna=False).dropna()
    if len(table) > MOST_POINTS:
        table = table.iloc[np.unique(np.linspace(0, len(table) - 1, MOST_POINTS).round().astype(int))]
    found = ((float(step), estimate(values.to_numpy(dtype=float))) for step, values in table.iterrows())
    return [Point(step, one.mean, one.low, one.high, one.n) for step, one in found if math.isfinite(one.mean)]


def over_rates(analysis: Analysis) -> list[LineChart]:
    """The judged metric over each numeric tuned axis, where it is the only one; empty without such an axis."""
    findings, axes = analysis.findings, tuned_axes(analysis.findings)
    if len(axes) != 1 or not pd.api.types.is_numeric_dtype(findings.runs[axes[0]]):
        return []
    positive = bool((findings.runs[axes[0]] > 0).all())
    charts: dict[str, LineChart] = {}
    for comparison in analysis.fixed:
        setting = dict(comparison.setting)
        rate = float(setting.pop(axes[0]))
        where = ", ".join(f"{axis} = {text(value)}" for axis, value in setting.items())
        key = _key(f"over {axes[0]} {where}")
        title = f"{findings.metric} over {axes[0]}" + (f", {where}" if where else "")
        chart = charts.setdefault(key, LineChart(key, title, axes[0], findings.metric, {}, log=positive))
        for arm in comparison.arms:
            one = arm.estimate
            if math.isfinite(one.mean):
                chart.lines.setdefault(arm.name, []).append(Point(rate, one.mean, one.low, one.high, one.n))
    for chart in charts.values():
        for points in chart.lines.values():
            points.sort(key=lambda point: point.x)
    return [chart for chart in charts.values() if any(len(points) > 1 for points in chart.lines.values())]


def _key(name: str) -> str:
    """A part of a file name.

    >>> _key("test/accuracy_by_inner_step")
    'test-accuracy_by_inner_step'
    """
    return "".join(sign if sign.isalnum() or sign in "_.-" else "-" for sign in name).strip("-")
