"""Further measures of the same runs side by side; not tested, for an experiment is about one measure."""

import math

from arelu_meta.analysis.arms import Comparison
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.published import SourceKey, published_sources, published_value
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
    """A column for each source that published a figure under the metric's name."""
    sources = [source for source in published_sources(comparison.arms) if source[0] == metric]
    return [
        Column(
            f"published {metric}" + (f" ({number})" if len(sources) > 1 else ""),
            ", ".join(part for part in source[1:] if part),
            tuple(Cell(Numbers(2).value(value), value) for value in _values(comparison, source)),
        )
        for number, source in enumerate(sources, 1)
    ]


def _values(comparison: Comparison, source: SourceKey) -> list[float]:
    return [published_value(arm, source) for arm in comparison.arms]
