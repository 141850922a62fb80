"""Further measures of the same runs side by side; not tested, for an experiment is about one measure."""

import math

from arelu_meta.reporting.arms import Arm, Comparison
from arelu_meta.reporting.findings import Findings
from arelu_meta.reporting.numbers import NONE, Numbers, unit_of
from arelu_meta.reporting.table import Cell, Column, Table


def further_table(findings: Findings, comparison: Comparison) -> Table | None:
    """Lay out each further measure, and what was published of it behind it; None where runs have none of them."""
    columns = [
        column
        for metric, published in findings.further.items()
        if any(metric in arm.further for arm in comparison.arms)
        for column in (_measured(comparison, metric), *_published(comparison, published))
    ]
    names = tuple(Cell(arm.name, arm.name) for arm in comparison.arms)
    return Table((Column(findings.arm, "", names), *columns)) if columns else None


def _measured(comparison: Comparison, metric: str) -> Column:
    found = [arm.further.get(metric) for arm in comparison.arms]
    means = [estimate.mean for estimate in found if estimate is not None]
    numbers = Numbers.fitting(means, unit_of(metric, means))
    cells = tuple(
        Cell(NONE, math.nan) if estimate is None else Cell(numbers.with_interval(estimate), estimate.mean)
        for estimate in found
    )
    return Column(metric, "mean over seeds with Student's 95 % interval", cells)


def _published(comparison: Comparison, metric: str) -> list[Column]:
    values = [_value(arm, metric) for arm in comparison.arms]
    if all(math.isnan(value) for value in values):
        return []
    cells = tuple(Cell(Numbers(2).value(value), value) for value in values)
    return [Column(f"published {metric}", "", cells)]


def _value(arm: Arm, metric: str) -> float:
    """The first figure that was published under a metric's name."""
    rows = arm.published[arm.published["metric"] == metric]
    return float(rows["value"].iloc[0]) if len(rows) else math.nan
