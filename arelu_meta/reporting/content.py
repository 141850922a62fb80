"""What a report says, in order, before it is Markdown, LaTeX or HTML."""

import math
from dataclasses import dataclass

from arelu_meta.reporting.analysis import Analysis, analyse
from arelu_meta.reporting.arms import Comparison
from arelu_meta.reporting.findings import Findings
from arelu_meta.reporting.notes import notes
from arelu_meta.reporting.numbers import Numbers, duration
from arelu_meta.reporting.table import Table, table
from arelu_meta.reporting.verdict import verdict


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
    verdicts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    parts: tuple[Part, ...]
    facts: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


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
    numbers = Numbers.fitting(means, findings.unit)
    several = len(analysis.judged) > 1
    verdicts = tuple((one.label if several else "", verdict(findings, one, numbers)) for one in analysis.judged)
    parts = tuple(_part(findings, comparison, numbers) for comparison in analysis.all)
    return Content(
        analysis=analysis,
        numbers=numbers,
        title=findings.title or findings.name,
        question=findings.question,
        banner=banner(findings),
        verdicts=verdicts or (("", "Nothing can be compared: no run has finished."),),
        notes=tuple(notes(analysis)) if analysis.all else (),
        parts=parts,
        facts=_facts(findings),
        missing=findings.missing,
    )


def _part(findings: Findings, comparison: Comparison, numbers: Numbers) -> Part:
    laid_out = table(findings, comparison, numbers)
    legend = tuple(f"{column.heading}: {column.meaning}" for column in laid_out.columns if column.meaning)
    title = ", ".join(part for part in (findings.metric, comparison.label, comparison.seeds) if part)
    return Part(title, banner(findings), laid_out, legend)


def _facts(findings: Findings) -> tuple[tuple[str, str], ...]:
    runs = findings.runs
    seconds = float(runs["seconds"].sum()) if "seconds" in runs else math.nan
    return (
        ("experiment", findings.name),
        *((str(name), str(value)) for name, value in findings.protocol.items()),
        ("budget", f"{100 * findings.budget:g} % of the full training"),
        ("finished runs", f"{len(runs)}" + (f", {len(findings.missing)} missing" if findings.missing else "")),
        ("cost", f"{duration(seconds)} of computing, all runs together"),
    )
