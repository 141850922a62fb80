"""What a report says, in order, before it is Markdown, LaTeX or HTML."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from arelu_meta.analysis.analyse import Analysis, analyse
from arelu_meta.analysis.arms import Comparison
from arelu_meta.analysis.controls import against_controls, explained_arm
from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.further import further_table
from arelu_meta.reporting.notes import notes
from arelu_meta.reporting.numbers import Numbers, duration, unit_of
from arelu_meta.reporting.table import Table, control_table, table
from arelu_meta.reporting.verdict import Verdict, verdict


@dataclass(frozen=True, eq=False)
class Part:
    """One table with its heading and what its columns mean."""

    title: str
    banner: str
    table: Table
    legend: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Content:
    """The words and tables of a report."""

    analysis: Analysis
    numbers: Numbers
    title: str
    question: str
    banner: str
    """Stands over everything and over every table when the budget was reduced."""
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    parts: tuple[Part, ...]
    """One per comparison, in their order."""
    controls: tuple[Part | None, ...]
    """The explained arm beside its controls, per judged comparison."""
    further: tuple[Part | None, ...]
    """Further measures of the same runs, per judged comparison."""
    facts: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]

    @property
    def tables(self) -> tuple[Part, ...]:
        """All tables in the order they are read: each judged comparison with what belongs to it, then the others."""
        judged = zip(self.parts, self.controls, self.further, strict=False)
        first = tuple(part for one in judged for part in one if part is not None)
        return (*first, *self.parts[len(self.controls) :])


def banner(findings: Findings) -> str:
    """The warning of a reduced budget; empty for the full one."""
    if findings.budget >= 1:
        return ""
    share = f"{100 * findings.budget:g} % of the full training"
    return f"Reduced budget: every run had {share}; these are not the results of the full experiment."


def content(findings: Findings) -> Content:
    """Analyse findings and put the results into words and tables."""
    analysis = analyse(findings)
    means = [arm.estimate.mean for comparison in analysis.all for arm in comparison.arms]
    unit = unit_of(findings.metric, means) if findings.unit is None else findings.unit
    numbers = Numbers.fitting(means, unit)
    several = len(analysis.judged) > 1
    verdicts = tuple(verdict(findings, one, numbers, one.label if several else "") for one in analysis.judged)
    parts = tuple(_part(findings, comparison, numbers) for comparison in analysis.all)
    return Content(
        analysis=analysis,
        numbers=numbers,
        title=findings.title or findings.name,
        question=findings.question,
        banner=banner(findings),
        verdicts=verdicts or (Verdict("Nothing can be compared: no run has finished."),),
        notes=tuple(notes(analysis)) if analysis.all else (),
        parts=parts,
        controls=tuple(_controls(findings, comparison, numbers) for comparison in analysis.judged),
        further=tuple(_further(findings, comparison) for comparison in analysis.judged),
        facts=_facts(findings),
        missing=findings.missing,
    )


def _part(findings: Findings, comparison: Comparison, numbers: Numbers) -> Part:
    title = ", ".join(part for part in (findings.metric, comparison.label, comparison.seeds) if part)
    return _explained(title, banner(findings), table(findings, comparison, numbers))


def _controls(findings: Findings, comparison: Comparison, numbers: Numbers) -> Part | None:
    controls = against_controls(findings, comparison)
    if not controls:
        return None
    subject = explained_arm(findings, comparison) or ""
    title = f"{subject} against its controls" + (f", {comparison.label}" if comparison.label else "")
    return _explained(title, banner(findings), control_table(controls, subject, numbers))


def _further(findings: Findings, comparison: Comparison) -> Part | None:
    laid_out = further_table(findings, comparison)
    if laid_out is None:
        return None
    title = "further measures of the same runs" + (f", {comparison.label}" if comparison.label else "")
    return _explained(title, banner(findings), laid_out)


def _explained(title: str, warning: str, laid_out: Table) -> Part:
    legend = tuple(f"{column.heading}: {column.meaning}" for column in laid_out.columns if column.meaning)
    return Part(title, warning, laid_out, legend)


def _facts(findings: Findings) -> tuple[tuple[str, str], ...]:
    runs = findings.runs
    seconds = float(runs["seconds"].sum()) if "seconds" in runs else math.nan
    return (
        ("experiment", findings.name),
        *((str(name), str(value)) for name, value in findings.protocol.items()),
        ("budget", f"{100 * findings.budget:g} % of the full training"),
        ("finished runs", f"{len(runs)}{_without_result(findings)}"),
        ("cost", f"{duration(seconds)} of computing, all runs together"),
    )


def _without_result(findings: Findings) -> str:
    values = pd.to_numeric(findings.runs.get(findings.metric, pd.Series(dtype=float)), errors="coerce")
    diverged = int((~np.isfinite(values)).sum())
    counts = ((diverged, "of them without a finite result"), (len(findings.missing), "missing"))
    return "".join(f", {count} {what}" for count, what in counts if count)
