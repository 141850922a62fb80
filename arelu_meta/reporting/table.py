"""The table of a comparison: one set of rows that Markdown, LaTeX, HTML and the terminal all show."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arelu_meta.analysis.arms import ALPHA, Arm, Comparison
from arelu_meta.analysis.controls import Control
from arelu_meta.analysis.estimates import Estimate
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.matching import decades_from
from arelu_meta.analysis.power import detectable_difference
from arelu_meta.analysis.published import SourceKey, published_sources, published_value
from arelu_meta.analysis.settings import text
from arelu_meta.reporting.numbers import NONE, Numbers, p_value
from arelu_meta.reporting.words import counted

DETECTABLE = "smallest true difference found with 80 % power at the corrected level"


@dataclass(frozen=True)
class Cell:
    """What is shown, and what it is sorted by."""

    text: str
    order: float | str


@dataclass(frozen=True)
class Column:
    """A heading, what it means, and a cell per arm."""

    heading: str
    meaning: str
    cells: tuple[Cell, ...]

    @property
    def of_words(self) -> bool:
        """Whether it is read from the left."""
        return all(isinstance(cell.order, str) for cell in self.cells)


@dataclass(frozen=True)
class Table:
    """Columns side by side."""

    columns: tuple[Column, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """The headings."""
        return tuple(column.heading for column in self.columns)

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """The cells, arm by arm."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def role(findings: Findings, name: str) -> str:
    """What an arm is there for."""
    if name == findings.baseline:
        return "baseline"
    return f"control: lacks {findings.controls[name]}" if name in findings.controls else ""


def table(findings: Findings, comparison: Comparison, numbers: Numbers) -> Table:
    """Lay a comparison out."""
    columns = _who(findings, comparison)
    if comparison.matched:
        columns += _chosen(comparison)
    columns += _values(findings, comparison, numbers)
    if any(arm.difference is not None for arm in comparison.arms):
        columns += _differences(findings, comparison, numbers)
    columns += _by_episode(comparison, numbers)
    return Table((*columns, *_published(findings, comparison, numbers)))


def control_table(controls: Sequence[Control], subject: str, numbers: Numbers) -> Table:
    """Lay out the explained arm less each of its controls."""
    pairs = [control.difference for control in controls]
    points = f" ({numbers.points})" if numbers.points else ""
    ps = tuple(Cell(p_value(one.p_holm) + (" *" if one.p_holm < ALPHA else ""), one.p_holm) for one in controls)
    limits = (detectable_difference(pair.sd, pair.n, alpha=ALPHA / len(controls)) for pair in pairs)
    return Table(
        (
            _words("control", [control.arm for control in controls]),
            _words("lacks", [control.takes_away for control in controls]),
            Column("n", "seeds that both have", tuple(Cell(str(pair.n), pair.n) for pair in pairs)),
            _estimates(
                f"{subject} less control{points}",
                "mean paired difference, 95 % interval of each by itself",
                (pair.estimate for pair in pairs),
                numbers,
            ),
            Column("p", f"paired t test, Holm-corrected over {counted(len(controls), 'control')}; * is below 0.05", ps),
            Column(
                "p perm.",
                "exact sign-flip permutation test, not corrected",
                tuple(Cell(p_value(pair.p_permutation), pair.p_permutation) for pair in pairs),
            ),
            _plain("detectable", DETECTABLE, limits, numbers),
        )
    )


def _words(heading: str, words: Iterable[str]) -> Column:
    return Column(heading, "", tuple(Cell(word, word) for word in words))


def _estimates(heading: str, meaning: str, estimates: Iterable[Estimate | None], numbers: Numbers) -> Column:
    cells = (Cell(numbers.signed_with_interval(one), one.mean) if one else Cell(NONE, math.nan) for one in estimates)
    return Column(heading, meaning, tuple(cells))


def _plain(heading: str, meaning: str, values: Iterable[float], numbers: Numbers) -> Column:
    return Column(heading, meaning, tuple(Cell(numbers.value(value), value) for value in values))


def _who(findings: Findings, comparison: Comparison) -> list[Column]:
    names = [arm.name for arm in comparison.arms]
    roles = [role(findings, name) for name in names]
    return [_words(findings.arm, names), *([_words("role", roles)] if any(roles) else [])]


def _values(findings: Findings, comparison: Comparison, numbers: Numbers) -> list[Column]:
    arms = comparison.arms
    unit = f" ({numbers.unit})" if numbers.unit else ""
    means = tuple(Cell(numbers.with_interval(arm.estimate), arm.estimate.mean) for arm in arms)
    return [
        Column("n", "seeds with a result", tuple(Cell(str(arm.estimate.n), arm.estimate.n) for arm in arms)),
        Column(f"mean{unit}", f"{findings.metric}, mean over seeds with Student's 95 % interval", means),
        _plain("sd", "standard deviation over seeds", (arm.sd for arm in arms), numbers),
    ]


def _differences(findings: Findings, comparison: Comparison, numbers: Numbers) -> list[Column]:
    arms = comparison.arms
    points = f" ({numbers.points})" if numbers.points else ""
    estimates = [arm.difference.estimate if arm.difference else None for arm in arms]
    flips = [arm.difference.p_permutation if arm.difference else math.nan for arm in arms]
    tests = f"Holm-corrected over {counted(len(comparison.tested), 'arm')}; * is below 0.05: detectable"
    return [
        _estimates(
            f"to {findings.baseline}{points}",
            "mean paired difference over shared seeds, 95 % interval of each by itself",
            estimates,
            numbers,
        ),
        Column("p", f"paired t test, {tests}", tuple(_p(arm) for arm in arms)),
        Column("p perm.", "exact sign-flip permutation test, not corrected", tuple(Cell(p_value(p), p) for p in flips)),
        _plain("detectable", DETECTABLE, (arm.detectable for arm in arms), numbers),
    ]


def _p(arm: Arm) -> Cell:
    return Cell(p_value(arm.p_holm) + (" *" if arm.apart else ""), arm.p_holm)


def _by_episode(comparison: Comparison, numbers: Numbers) -> list[Column]:
    pairs = [arm.episodes.together if arm.episodes else None for arm in comparison.arms]
    if not any(pairs):
        return []
    size = max(pair.n for pair in pairs if pair)
    meaning = f"paired difference over {size} fixed test episodes: holds for these networks, not for another seed"
    return [_estimates("by episode", meaning, pairs, numbers)]


def _published(findings: Findings, comparison: Comparison, numbers: Numbers) -> list[Column]:
    """A column for each source, but for figures that stand beside the further measure they are of."""
    elsewhere = {
        published
        for metric, published in findings.further.items()
        if any(metric in arm.further for arm in comparison.arms)
    }
    sources: list[SourceKey] = [
        source for source in published_sources(comparison.arms) if source[0] not in elsewhere - {findings.metric}
    ]
    return [
        _plain(
            "published" if len(sources) == 1 else f"published {number}",
            ", ".join(part for part in source if part),
            (published_value(arm, source) for arm in comparison.arms),
            numbers,
        )
        for number, source in enumerate(sources, 1)
    ]


def _chosen(comparison: Comparison) -> list[Column]:
    columns = []
    baseline = comparison.arm(comparison.baseline)
    for axis in (axis for axis, _ in comparison.arms[0].setting if axis not in dict(comparison.setting)):
        cells = []
        for arm in comparison.arms:
            value = dict(arm.setting)[axis]
            edge = " (edge)" if arm.choice and axis in arm.choice.at_edge else ""
            cells.append(Cell(text(value) + edge, value if isinstance(value, int | float) else str(value)))
        columns.append(Column(f"best {axis}", "chosen on the validation metric's mean over seeds", tuple(cells)))
        shifts = [
            decades_from(arm.setting, baseline.setting, axis) if baseline else math.nan for arm in comparison.arms
        ]
        if any(math.isfinite(shift) for shift in shifts):
            written = Numbers(1)
            shifted = tuple(Cell(written.signed(shift), shift) for shift in shifts)
            columns.append(Column("decades", f"best {axis} against the baseline's, in powers of ten", shifted))
    return columns
