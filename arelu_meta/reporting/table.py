"""The tables of a report: one set of rows that Markdown, LaTeX, HTML and the terminal all show, and table.csv."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from arelu_meta.analysis.arms import Analysis, Arm, ArmComparison
from arelu_meta.analysis.decisions import PairedTest
from arelu_meta.analysis.estimates import Estimate
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.improvement import BEST_RUN
from arelu_meta.analysis.settings import decades_from, value_text
from arelu_meta.analysis.speed import time_unit
from arelu_meta.reporting.numbers import NONE, NumberFormat, p_value
from arelu_meta.reporting.words import counted, learned_text

LEARNED = "trainings that neither diverged nor collapsed nor ended at chance or far below the others"
# Where it is not known what guessing gives.
FINITE = "trainings that ended with a number; one that learned nothing counts, as the result of guessing is not known"
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


def make_column(heading: str, meaning: str, values: Iterable[Any], write: Callable[[Any], str] = str) -> TableColumn:
    """A cell per value, a dash for None; estimates are sorted by their means."""
    cells = []
    for value in values:
        order = value.mean if isinstance(value, Estimate) else value
        cells.append(TableCell(NONE, math.nan) if value is None else TableCell(write(value), order))
    return TableColumn(heading, meaning, tuple(cells))


def difference_column(
    heading: str, tests: Sequence[PairedTest | None], numbers: NumberFormat, family: int, primary: str = ""
) -> TableColumn:
    """Differences with the intervals of their tests; identical results are called so."""
    unit = f" ({numbers.difference_unit})" if numbers.difference_unit else ""
    together = f"simultaneous 95 % intervals of {family} comparisons{primary}" if family > 1 else "95 % interval"
    meaning = f"mean paired difference over the seeds in which both learned, {together}"
    cells = []
    for test in tests:
        if test is None:
            cells.append(TableCell(NONE, math.nan))
        elif test.difference.identical:
            cells.append(TableCell("identical", 0.0))
        else:
            cells.append(TableCell(numbers.with_interval(test.interval, signed=True), test.interval.mean))
    return TableColumn(f"{heading}{unit}", meaning, tuple(cells))


def p_column(tests: Sequence[PairedTest | None], family: int, primary: str = "") -> TableColumn:
    """Corrected p values of the paired t tests."""
    over = f", corrected over {counted(family, 'comparison')} (Bonferroni){primary}" if family > 1 else ""
    cells = []
    for test in tests:
        p = math.nan if test is None or test.difference.identical else test.p
        cells.append(TableCell(p_value(p) + (" *" if test is not None and test.differs else ""), p))
    return TableColumn("p", f"paired t test{over}; * detectable: below 0.05, and no failures decide", tuple(cells))


def verdict_column(tests: Sequence[PairedTest | None], numbers: NumberFormat) -> TableColumn:
    """What each comparison comes to."""
    margin = next((test.margin for test in tests if test is not None), None)
    meaning = "different: p below 0.05"
    meaning += (
        f"; equivalent within {numbers.amount(margin)}: two one-sided t tests at 5 %, corrected alike" if margin else ""
    )
    return make_column("verdict", meaning, (str(test.outcome) if test else "" for test in tests))


def learned_heading(findings: Findings) -> tuple[str, str]:
    """Head the column of trainings that learned, as far as that can be known, and say what it counts."""
    return ("learned", LEARNED) if findings.chance is not None else ("finite", FINITE)


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
    mean += "; of the trainings that learned, or of all where none did" if any(arm.failed for arm in arms) else ""
    timed = time_unit(findings.metric)
    learned = ("reached", "trainings that learned and got there") if timed else learned_heading(findings)
    limits = "0" if timed else "0 or 100 %"
    mean += f"; (cut): the interval is cut at {limits}" if any(arm.estimate.cut for arm in arms) else ""
    columns = [
        make_column(findings.arm, "", names),
        *([make_column("role", "", roles)] if any(roles) else []),
        *(_choice_columns(comparison) if comparison.matched else []),
        *([make_column(*learned, map(learned_text, arms))] if any(arm.failed for arm in arms) else []),
        make_column("n", "seeds behind the mean", (arm.estimate.n for arm in arms)),
        make_column(f"mean{unit}", mean, (arm.estimate for arm in arms), numbers.with_interval),
        make_column("sd", "standard deviation over seeds", (arm.sd for arm in arms), numbers.value),
        *_difference_columns(findings, comparison, numbers),
    ]
    # Published figures of another metric stand beside that metric, in a table of their own.
    others = findings.other_metrics
    elsewhere = {others[metric] for metric in others if any(metric in arm.other_metrics for arm in arms)}
    elsewhere = elsewhere - {findings.metric} | {findings.metric + BEST_RUN}
    sources = [key for key in comparison.published_sources if key[0] not in elsewhere]
    for number, source in enumerate(sources, 1):
        heading = "published" if len(sources) == 1 else f"published {number}"
        published = (arm.published.get(source, math.nan) for arm in arms)
        columns.append(make_column(heading, ", ".join(filter(None, source)), published, numbers.value))
    title = ", ".join(text for text in (findings.metric, comparison.label, comparison.seeds) if text)
    return ReportTable(title, tuple(columns))


def _difference_columns(findings: Findings, comparison: ArmComparison, numbers: NumberFormat) -> list[TableColumn]:
    """Paired differences to the baseline with their tests; none where there is no baseline."""
    arms = comparison.arms
    tests = [arm.test for arm in arms]
    signed = partial(numbers.with_interval, signed=True)
    columns: list[TableColumn] = []
    if any(tests):
        primary = f"; {findings.primary}, the primary comparison, by itself" if findings.primary else ""
        flips = (
            math.nan if test is None or test.difference.identical else test.difference.p_permutation for test in tests
        )
        columns += [
            difference_column(f"to {findings.baseline}", tests, numbers, comparison.family, primary),
            p_column(tests, comparison.family, primary),
            make_column("p perm.", PERMUTATION, flips, p_value),
            verdict_column(tests, numbers),
        ]
    episodes = [arm.episodes.together if arm.episodes else None for arm in arms]
    if any(episodes):
        size = max(pair.n for pair in episodes if pair)
        meaning = f"paired difference over {size} fixed test episodes: holds for these networks, not for another seed"
        columns.append(make_column("by episode", meaning, episodes, signed))
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
            columns.append(make_column("decades", meaning, shifts, NumberFormat(1).signed))
    return columns


def arm_numbers(arm: Arm) -> dict[str, float]:
    """All numbers of an arm by name; NaN where there is none."""
    pair, test, episodes = arm.difference, arm.test, arm.episodes.together if arm.episodes else None
    ahead = arm.improvement
    return {
        "trainings": len(arm.results),
        "learned": len(arm.results) - len(arm.failed),
        "learned_ci95_low": arm.learned.low,
        "learned_ci95_high": arm.learned.high,
        "n": arm.estimate.n,
        "mean": arm.estimate.mean,
        "sd": arm.sd,
        "ci95_low": arm.estimate.low,
        "ci95_high": arm.estimate.high,
        "median": arm.median,
        "interquartile_mean": arm.interquartile_mean,
        "best_run": arm.best,
        "difference": pair.estimate.mean if pair else math.nan,
        "difference_n": pair.n if pair else math.nan,
        "difference_sd": pair.sd if pair else math.nan,
        "difference_ci95_low": test.interval.low if test else math.nan,
        "difference_ci95_high": test.interval.high if test else math.nan,
        "corrected_over": test.family if test else math.nan,
        "p_t": pair.p_t if pair else math.nan,
        "p_t_corrected": test.p if test else math.nan,
        "p_permutation": pair.p_permutation if pair else math.nan,
        "p_equivalence_corrected": test.p_equivalence if test else math.nan,
        "improvement": ahead.mean if ahead else math.nan,
        "improvement_ci95_low": ahead.low if ahead else math.nan,
        "improvement_ci95_high": ahead.high if ahead else math.nan,
        "episodes_difference": episodes.mean if episodes else math.nan,
        "episodes_ci95_low": episodes.low if episodes else math.nan,
        "episodes_ci95_high": episodes.high if episodes else math.nan,
        "episodes_n": episodes.n if episodes else math.nan,
    }


def numbers_frame(analysis: Analysis) -> pd.DataFrame:
    """Every number of an analysis, a row per arm and setting; `view` tells fixed settings from matched ones.

    Measures of speed follow, told apart by the column `metric`.
    """
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
                    "verdict": str(arm.outcome or ""),
                    **{name: arm.published.get(key, math.nan) for name, key in zip(names, sources, strict=True)},
                    "seconds": arm.seconds,
                }
            )
    return pd.concat([pd.DataFrame(rows), *map(numbers_frame, analysis.speeds)], ignore_index=True)
