"""What a report says, in order, before it is a page, Markdown or text: verdicts, notes, tables and facts."""

import math
import statistics
from dataclasses import dataclass

import numpy as np
import pandas as pd

from arelu_meta.analysis.arms import ALPHA, Analysis, ArmComparison, against_controls, analyse, explained_arm
from arelu_meta.analysis.estimates import smallest_sign_flip_p
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import setting_label, tuned_axes
from arelu_meta.reporting.numbers import NumberFormat, duration_text, p_value
from arelu_meta.reporting.table import ReportTable, comparison_table, control_table, other_metrics_table
from arelu_meta.reporting.words import Verdict, make_verdict

MIN_SEEDS_FOR_SPREAD, MIN_ARMS_FOR_SPREAD = 3, 3
WIDE_SPREAD = 3.0  # times the median standard deviation of the arms


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
    """Per primary comparison: the explained arm against its controls, and other metrics of the same runs."""
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
    comparisons = (*analysis.matched, *analysis.fixed)
    means = [arm.estimate.mean for comparison in comparisons for arm in comparison.arms]
    numbers = NumberFormat.for_values(means, findings.units.get(findings.metric, ""))
    several = len(analysis.primary) > 1
    verdicts = tuple(make_verdict(findings, one, numbers, one.label if several else "") for one in analysis.primary)
    side_tables = []
    for comparison in analysis.primary:
        controls, subject = against_controls(findings, comparison), explained_arm(findings, comparison) or ""
        first = control_table(controls, subject, comparison.label, numbers) if controls else None
        tables = (first, other_metrics_table(findings, comparison))
        side_tables.append(tuple(table for table in tables if table is not None))
    share = f"{100 * findings.budget:g} % of the full training"
    reduced = f"Reduced budget: every run had {share}; these are not the results of the full experiment."
    return Report(
        analysis=analysis,
        numbers=numbers,
        title=findings.title or findings.name,
        question=findings.question,
        banner=reduced if findings.budget < 1 else "",
        verdicts=verdicts or (Verdict("Nothing can be compared: no run has finished."),),
        notes=tuple(_notes(analysis)) if comparisons else (),
        main_tables=tuple(comparison_table(findings, comparison, numbers) for comparison in comparisons),
        side_tables=tuple(side_tables),
        facts=_facts(findings),
        missing=findings.missing,
    )


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


def _notes(analysis: Analysis) -> list[str]:
    """Everything that limits the conclusions of this analysis; what holds in all comparisons is said once."""
    findings = analysis.findings
    where: dict[str, list[str]] = {}
    for comparison in analysis.primary:
        notes = (_permutation_notes, _seed_notes, _spread_notes, _choice_notes)
        for note in (note for make_notes in notes for note in make_notes(comparison)):
            where.setdefault(note, []).append(setting_label(comparison.setting))
    found = [
        note + ("" if len(labels) == len(analysis.primary) else f" ({'; '.join(labels)})") + "."
        for note, labels in where.items()
    ]
    found += _execution_notes(findings)
    if tuned_axes(findings) and not analysis.matched:
        axes = ", ".join(tuned_axes(findings))
        found.append(f"There is no view with {axes} matched: choosing it per arm needs a validation metric.")
    if len(analysis.primary) > 1:
        found.append("p values are corrected over the arms of each table, not over the tables.")
    return found


def _permutation_notes(comparison: ArmComparison) -> list[str]:
    sizes = {arm.difference.n for arm in comparison.tested if arm.difference is not None}
    if not sizes:
        return []
    size, tests = max(sizes), len(comparison.tested)
    if smallest_sign_flip_p(size) > ALPHA / tests:
        over = f"{ALPHA:g}" + (f" corrected over {tests} arms" if tests > 1 else "")
        return [
            f"With {size} seeds the exact permutation test cannot go below p = {p_value(smallest_sign_flip_p(size))},"
            f" so it cannot confirm a difference at {over}; what is called detectable rests on the t test, which takes"
            " the differences over seeds for Gaussian"
        ]
    doubtful = [arm.name for arm in comparison.arms if arm.differs and arm.p_permutation_holm >= ALPHA]
    return [f"Detectable by the t test but not by the permutation test: {', '.join(doubtful)}"] if doubtful else []


def _seed_notes(comparison: ArmComparison) -> list[str]:
    """Name the arms that have fewer seeds, one, none in common with the baseline, or differences without spread."""
    arms, baseline = comparison.arms, comparison.baseline
    pairs = {arm.name: arm.difference for arm in arms if arm.difference is not None}
    most = max(arm.estimate.n for arm in arms)
    diverged = "; ".join(f"{arm.name} (seed {', '.join(map(str, arm.diverged))})" for arm in arms if arm.diverged)
    fewer = ", ".join(f"{arm.name} (n = {arm.estimate.n})" for arm in arms if arm.estimate.n != most)
    single = ", ".join(arm.name for arm in arms if arm.estimate.n == 1)
    unpaired = ", ".join(name for name, pair in pairs.items() if pair.n == 0)
    constant = ", ".join(name for name, pair in pairs.items() if pair.constant)
    notes = (
        ("Runs without a finite result are left out, which flatters their arm", diverged),
        (f"Fewer seeds than the {most} of the others, paired where seeds are shared", fewer),
        ("One seed gives no interval and no test", single),
        (f"No seed shared with {baseline}", unpaired),
        (f"The difference to {baseline} is the same in every seed and has no spread to test with", constant),
    )
    return [f"{note}: {names}" for note, names in notes if names]


def _spread_notes(comparison: ArmComparison) -> list[str]:
    """Arms whose seeds lie much further apart than those of most arms, as where some trainings collapse."""
    arms = [arm for arm in comparison.arms if arm.estimate.n >= MIN_SEEDS_FOR_SPREAD]
    usual = statistics.median(arm.sd for arm in arms) if len(arms) >= MIN_ARMS_FOR_SPREAD else math.nan
    found = []
    for arm in arms:
        if arm.sd > WIDE_SPREAD * usual > 0:
            numbers = NumberFormat.for_values(arm.values)
            low, middle, high = (numbers.value(value) for value in arm.values.quantile([0.0, 0.5, 1.0]))
            found.append(
                f"The seeds of {arm.name} lie far apart, from {low} to {high} with a median of {middle}:"
                " look at them one by one before at their mean"
            )
    return found


def _choice_notes(comparison: ArmComparison) -> list[str]:
    chosen = [(arm.name, arm.choice) for arm in comparison.arms if arm.choice is not None]
    edge = ", ".join(f"{name} ({setting_label(choice.setting)})" for name, choice in chosen if choice.at_edge)
    uneven = ", ".join(name for name, choice in chosen if choice.uneven)
    notes = (
        ("Best at the edge of the grid, a wider one might do better", edge),
        ("Settings that were not all run with the same seeds, chosen on those they share", uneven),
    )
    return [f"{note}: {names}" for note, names in notes if names]


def _execution_notes(findings: Findings) -> list[str]:
    """Name what runs were executed with differently (threads, precision, ...): it moves results by rounding."""
    tags = dict.fromkeys(tag for executed in findings.execution.values() for tag in executed)
    notes = []
    for tag in tags:
        arms_by_values: dict[tuple[str, ...], list[str]] = {}
        for arm, executed in findings.execution.items():
            values = tuple(sorted(set(executed.get(tag, ())))) or ("unknown",)
            arms_by_values.setdefault(values, []).append(arm)
        name = tag.removeprefix("exec.")
        if len(arms_by_values) > 1:
            who = "; ".join(f"{', '.join(arms)} {' and '.join(values)}" for values, arms in arms_by_values.items())
            notes.append(f"Arms were run with different {name} ({who}): results can differ by rounding.")
        elif len(values := next(iter(arms_by_values))) > 1:
            who = " and ".join(values)
            notes.append(f"Runs of each arm were made with different {name} ({who}): results can differ by rounding.")
    return notes
