"""The tables of a report: one set of rows that Markdown, LaTeX, HTML and the terminal all show, and table.csv."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from arelu_meta.analysis.arms import ALPHA, Analysis, Arm, ArmComparison, Control
from arelu_meta.analysis.estimates import Estimate, detectable_difference
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import decades_from, value_text
from arelu_meta.reporting.numbers import NONE, NumberFormat, p_value
from arelu_meta.reporting.words import counted

DETECTABLE = "smallest true difference found with 80 % power at the corrected level"
PERMUTATION = "exact sign-flip permutation test, not corrected"


@dataclass(frozen=True)
class TableCell:
    """What is shown, and what it is sorted by."""

    text: str
    order: float | str


@dataclass(frozen=True)
class TableColumn:
    """A heading, what it means, and a cell per arm."""

    heading: str
    meaning: str
    cells: tuple[TableCell, ...]

    @property
    def is_text(self) -> bool:
        """Whether it is aligned left."""
        return all(isinstance(cell.order, str) for cell in self.cells)


@dataclass(frozen=True)
class ReportTable:
    """Columns side by side, under a title."""

    title: str
    columns: tuple[TableColumn, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """The headings."""
        return tuple(column.heading for column in self.columns)

    @property
    def rows(self) -> list[tuple[TableCell, ...]]:
        """The cells, arm by arm."""
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def legend(self) -> tuple[str, ...]:
        """What the columns mean, a line each."""
        return tuple(f"{column.heading}: {column.meaning}" for column in self.columns if column.meaning)


def _column(heading: str, meaning: str, values: Iterable[Any], write: Callable[[Any], str] = str) -> TableColumn:
    """A cell per value, a dash for None; estimates are sorted by their means."""
    cells = []
    for value in values:
        order = value.mean if isinstance(value, Estimate) else value
        cells.append(TableCell(NONE, math.nan) if value is None else TableCell(write(value), order))
    return TableColumn(heading, meaning, tuple(cells))


def _starred_p(p: float) -> str:
    """Write a corrected p value, with a star where it is detectable."""
    return p_value(p) + (" *" if p < ALPHA else "")


def arm_role(findings: Findings, name: str) -> str:
    """What an arm is there for."""
    if name == findings.baseline:
        return "baseline"
    return f"control: lacks {findings.controls[name]}" if name in findings.controls else ""


def comparison_table(findings: Findings, comparison: ArmComparison, numbers: NumberFormat) -> ReportTable:
    """Lay a comparison out: names, chosen settings, means, differences to the baseline, published values."""
    arms = comparison.arms
    names = [arm.name for arm in arms]
    roles = [arm_role(findings, name) for name in names]
    unit = f" ({numbers.unit})" if numbers.unit else ""
    mean = f"{findings.metric}, mean over seeds with Student's 95 % interval"
    columns = [
        _column(findings.arm, "", names),
        *([_column("role", "", roles)] if any(roles) else []),
        *(_choice_columns(comparison) if comparison.matched else []),
        _column("n", "seeds with a result", (arm.estimate.n for arm in arms)),
        _column(f"mean{unit}", mean, (arm.estimate for arm in arms), numbers.with_interval),
        _column("sd", "standard deviation over seeds", (arm.sd for arm in arms), numbers.value),
        *_difference_columns(findings, comparison, numbers),
    ]
    # Published figures of another metric stand beside that metric, in a table of their own.
    others = findings.other_metrics
    elsewhere = {others[metric] for metric in others if any(metric in arm.other_metrics for arm in arms)}
    sources = [key for key in comparison.published_sources if key[0] not in elsewhere - {findings.metric}]
    for number, source in enumerate(sources, 1):
        heading = "published" if len(sources) == 1 else f"published {number}"
        published = (arm.published.get(source, math.nan) for arm in arms)
        columns.append(_column(heading, ", ".join(filter(None, source)), published, numbers.value))
    title = ", ".join(text for text in (findings.metric, comparison.label, comparison.seeds) if text)
    return ReportTable(title, tuple(columns))


def _difference_columns(findings: Findings, comparison: ArmComparison, numbers: NumberFormat) -> list[TableColumn]:
    """Paired differences to the baseline with their tests; none where there is no baseline."""
    arms = comparison.arms
    pairs = [arm.difference for arm in arms]
    signed = partial(numbers.with_interval, signed=True)
    columns: list[TableColumn] = []
    if any(pairs):
        unit = f" ({numbers.difference_unit})" if numbers.difference_unit else ""
        tests = f"Holm-corrected over {counted(len(comparison.tested), 'arm')}; * is below 0.05: detectable"
        meaning = "mean paired difference over shared seeds, 95 % interval of each by itself"
        estimates = (pair.estimate if pair else None for pair in pairs)
        flips = (pair.p_permutation if pair else math.nan for pair in pairs)
        columns += [
            _column(f"to {findings.baseline}{unit}", meaning, estimates, signed),
            _column("p", f"paired t test, {tests}", (arm.p_holm for arm in arms), _starred_p),
            _column("p perm.", PERMUTATION, flips, p_value),
            _column("detectable", DETECTABLE, (arm.detectable for arm in arms), numbers.value),
        ]
    episodes = [arm.episodes.together if arm.episodes else None for arm in arms]
    if any(episodes):
        size = max(pair.n for pair in episodes if pair)
        meaning = f"paired difference over {size} fixed test episodes: holds for these networks, not for another seed"
        columns.append(_column("by episode", meaning, episodes, signed))
    return columns


def _choice_columns(comparison: ArmComparison) -> list[TableColumn]:
    """The setting that each arm chose, and its shift against the baseline's in decades."""
    columns = []
    baseline = comparison.arm(comparison.baseline)
    for axis in (axis for axis, _ in comparison.arms[0].setting if axis not in dict(comparison.setting)):
        cells = []
        for arm in comparison.arms:
            value = dict(arm.setting)[axis]
            edge = " (edge)" if arm.choice and axis in arm.choice.at_edge else ""
            cells.append(TableCell(value_text(value) + edge, value if isinstance(value, int | float) else str(value)))
        columns.append(TableColumn(f"best {axis}", "chosen on the validation metric's mean over seeds", tuple(cells)))
        shifts = [
            decades_from(arm.setting, baseline.setting, axis) if baseline else math.nan for arm in comparison.arms
        ]
        if any(math.isfinite(shift) for shift in shifts):
            meaning = f"best {axis} against the baseline's, in powers of ten"
            columns.append(_column("decades", meaning, shifts, NumberFormat(1).signed))
    return columns


def control_table(controls: Sequence[Control], subject: str, label: str, numbers: NumberFormat) -> ReportTable:
    """Lay out the explained arm less each of its controls."""
    pairs = [control.difference for control in controls]
    unit = f" ({numbers.difference_unit})" if numbers.difference_unit else ""
    tests = f"paired t test, Holm-corrected over {counted(len(controls), 'control')}; * is below 0.05"
    meaning = "mean paired difference, 95 % interval of each by itself"
    limits = (detectable_difference(pair.sd, pair.n, alpha=ALPHA / len(controls)) for pair in pairs)
    signed = partial(numbers.with_interval, signed=True)
    columns = (
        _column("control", "", (control.arm for control in controls)),
        _column("lacks", "", (control.lacks for control in controls)),
        _column("n", "seeds that both have", (pair.n for pair in pairs)),
        _column(f"{subject} less control{unit}", meaning, (pair.estimate for pair in pairs), signed),
        _column("p", tests, (control.p_holm for control in controls), _starred_p),
        _column("p perm.", PERMUTATION, (pair.p_permutation for pair in pairs), p_value),
        _column("detectable", DETECTABLE, limits, numbers.value),
    )
    return ReportTable(f"{subject} against its controls" + (f", {label}" if label else ""), columns)


def other_metrics_table(findings: Findings, comparison: ArmComparison) -> ReportTable | None:
    """Other metrics of the same runs, not tested, and what was published of them; None where runs have none."""
    arms = comparison.arms
    columns = [_column(findings.arm, "", (arm.name for arm in arms))]
    for metric, published in findings.other_metrics.items():
        estimates = [arm.other_metrics.get(metric) for arm in arms]
        means = [estimate.mean for estimate in estimates if estimate is not None]
        if not means:
            continue
        numbers = NumberFormat.for_values(means, findings.units.get(metric, ""))
        meaning = "mean over seeds with Student's 95 % interval"
        columns.append(_column(metric, meaning, estimates, numbers.with_interval))
        sources = [source for source in comparison.published_sources if source[0] == published]
        for number, source in enumerate(sources, 1):
            heading = f"published {published}" + (f" ({number})" if len(sources) > 1 else "")
            figures = (arm.published.get(source, math.nan) for arm in arms)
            columns.append(_column(heading, ", ".join(filter(None, source[1:])), figures, NumberFormat(2).value))
    title = "further measures of the same runs" + (f", {comparison.label}" if comparison.label else "")
    return ReportTable(title, tuple(columns)) if len(columns) > 1 else None


def arm_numbers(arm: Arm) -> dict[str, float]:
    """All numbers of an arm by name; NaN where there is none."""
    pair, episodes = arm.difference, arm.episodes.together if arm.episodes else None
    return {
        "n": arm.estimate.n,
        "mean": arm.estimate.mean,
        "sd": arm.sd,
        "ci95_low": arm.estimate.low,
        "ci95_high": arm.estimate.high,
        "difference": pair.estimate.mean if pair else math.nan,
        "difference_n": pair.n if pair else math.nan,
        "difference_sd": pair.sd if pair else math.nan,
        "difference_ci95_low": pair.estimate.low if pair else math.nan,
        "difference_ci95_high": pair.estimate.high if pair else math.nan,
        "p_t": pair.p_t if pair else math.nan,
        "p_t_holm": arm.p_holm,
        "p_permutation": pair.p_permutation if pair else math.nan,
        "p_permutation_holm": arm.p_permutation_holm,
        "detectable": arm.detectable,
        "episodes_difference": episodes.mean if episodes else math.nan,
        "episodes_ci95_low": episodes.low if episodes else math.nan,
        "episodes_ci95_high": episodes.high if episodes else math.nan,
        "episodes_n": episodes.n if episodes else math.nan,
    }


def numbers_frame(analysis: Analysis) -> pd.DataFrame:
    """Every number of an analysis, a row per arm and setting; `view` tells fixed settings from matched ones."""
    findings = analysis.findings
    rows = []
    for comparison in (*analysis.matched, *analysis.fixed):
        sources = comparison.published_sources
        names = ["published" if number == 1 else f"published_{number}" for number in range(1, len(sources) + 1)]
        for arm in comparison.arms:
            rows.append(
                {
                    "view": "matched" if comparison.matched else "fixed",
                    **{axis: arm.name if axis == findings.arm else dict(arm.setting)[axis] for axis in findings.axes},
                    "role": arm_role(findings, arm.name),
                    "metric": findings.metric,
                    **arm_numbers(arm),
                    **{name: arm.published.get(key, math.nan) for name, key in zip(names, sources, strict=True)},
                    "seconds": arm.seconds,
                }
            )
    return pd.DataFrame(rows)
