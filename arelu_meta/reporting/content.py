"""What a report says, in order, before it is a page, Markdown or text: verdicts, notes, tables and facts."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from arelu_meta.analysis.arms import Analysis, ArmComparison, analyse
from arelu_meta.analysis.controls import against_controls, explained_arm
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.rates import advantage_changes
from arelu_meta.reporting.notes import make_notes
from arelu_meta.reporting.numbers import NumberFormat, duration_text
from arelu_meta.reporting.side_tables import (
    beyond_mean_table,
    change_table,
    choice_table,
    control_table,
    improvement_table,
    other_metrics_table,
)
from arelu_meta.reporting.table import ReportTable, comparison_table
from arelu_meta.reporting.words import Verdict, change_sentence, make_verdict, number_format, speed_sentence


@dataclass(frozen=True, eq=False)
class Report:
    """The analysis of findings with the words and tables that follow from it; `make_report` makes one."""

    analysis: Analysis
    numbers: NumberFormat
    title: str
    question: str
    banner: str
    """Stands over everything and over every table when the budget was reduced."""
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    main_tables: tuple[ReportTable, ...]
    """One per comparison, primary ones first."""
    side_tables: tuple[tuple[ReportTable, ...], ...]
    """Per primary comparison: the explained arm against its controls, measures of speed, other metrics, and more."""
    facts: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]

    @property
    def primary_tables(self) -> tuple[ReportTable, ...]:
        """The table of each primary comparison, each with those beside it."""
        pairs = zip(self.main_tables, self.side_tables, strict=False)
        return tuple(table for main, beside in pairs for table in (main, *beside))

    @property
    def secondary_tables(self) -> tuple[ReportTable, ...]:
        """Tables at fixed settings, where the primary ones have each arm at its own."""
        return self.main_tables[len(self.side_tables) :]


def make_report(findings: Findings) -> Report:
    """Analyse findings and put the results into words and tables.

    Args:
        findings: Results of runs, one row each.

    Returns:
        The report, for `write_report` (files), `report_metrics` (MLflow) and `report_summary` (text).

    Raises:
        InputError: A column is missing, or two runs have the same axes and seed.

    Example:
        >>> runs = pd.DataFrame({"activation": ["relu"] * 3 + ["arelu"] * 3, "seed": [0, 1, 2] * 2,
        ...                      "test/accuracy": [80.0, 82.0, 84.0, 85.0, 88.0, 89.5]})
        >>> found = Findings("mine", "", "", runs, ("activation",), "activation", "relu", "test/accuracy")
        >>> make_report(found).verdicts[0].sentences.partition(",")[0]
        'arelu is detectably better than relu on test/accuracy: +5.50'
    """
    analysis = analyse(findings)
    facts, findings = _facts(findings), analysis.findings  # over splits another table, and tests that know of it
    comparisons = (*analysis.matched, *analysis.fixed)
    numbers = number_format(findings, [arm for comparison in comparisons for arm in comparison.arms])
    several = len(analysis.primary) > 1
    verdicts = []
    for one in analysis.primary:
        verdict = make_verdict(findings, one, numbers, one.label if several else "")
        change = change_sentence(findings, one, advantage_changes(analysis, one), numbers)
        speeds = (speed_sentence(speed.findings, there) for speed, there in _speeds(analysis, one))
        verdicts.append(replace(verdict, evidence=" ".join(filter(None, (verdict.evidence, change, *speeds)))))
    side_tables = tuple(_side_tables(analysis, comparison, numbers) for comparison in analysis.primary)
    share = f"{100 * findings.budget:g} % of the full training"
    reduced = f"Reduced budget: every run had {share}; these are not the results of the full experiment."
    return Report(
        analysis=analysis,
        numbers=numbers,
        title=findings.title or findings.name,
        question=findings.question,
        banner=reduced if findings.budget < 1 else "",
        verdicts=tuple(verdicts) or (Verdict("Nothing can be compared: no run has finished."),),
        notes=tuple(make_notes(analysis)) if comparisons else findings.remarks,
        main_tables=tuple(comparison_table(findings, comparison, numbers) for comparison in comparisons),
        side_tables=side_tables,
        facts=facts,
        missing=findings.missing,
    )


def _side_tables(analysis: Analysis, comparison: ArmComparison, numbers: NumberFormat) -> tuple[ReportTable, ...]:
    """Everything that stands beside a primary comparison."""
    findings = analysis.findings
    controls, subject = against_controls(findings, comparison), explained_arm(findings, comparison) or ""
    tables = (
        control_table(controls, subject, comparison.label, numbers) if controls else None,
        change_table(analysis, comparison, numbers),
        choice_table(analysis, comparison, numbers),
        beyond_mean_table(findings, comparison, numbers),
        improvement_table(analysis, comparison, numbers),
        *(
            comparison_table(speed.findings, there, number_format(speed.findings, there.arms))
            for speed, there in _speeds(analysis, comparison)
        ),
        other_metrics_table(findings, comparison),
    )
    return tuple(table for table in tables if table is not None)


def _speeds(analysis: Analysis, comparison: ArmComparison) -> list[tuple[Analysis, ArmComparison]]:
    """The same comparison by each measure of speed, where runs measured it."""
    same = [(speed, there) for speed in analysis.speeds for there in speed.primary]
    return [(speed, there) for speed, there in same if there.label == comparison.label]


def _facts(findings: Findings) -> tuple[tuple[str, str], ...]:
    runs = findings.runs
    seconds = float(runs["seconds"].sum()) if "seconds" in runs else math.nan
    values = pd.to_numeric(runs.get(findings.metric, pd.Series(dtype=float)), errors="coerce")
    diverged = int((~np.isfinite(values)).sum())
    counts = ((diverged, "of them without a finite result"), (len(findings.missing), "missing"))
    return (
        ("experiment", findings.name),
        *((str(name), str(value)) for name, value in findings.protocol.items()),
        ("budget", f"{100 * findings.budget:g} % of the full training"),
        ("finished runs", f"{len(runs)}{''.join(f', {count} {what}' for count, what in counts if count)}"),
        ("cost", f"{duration_text(seconds)} of computing, all runs together"),
    )
