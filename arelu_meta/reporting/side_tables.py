"""Tables beside the main one: controls, other metrics, measures beyond the mean, and what depends on a setting."""

import math
from collections.abc import Sequence
from functools import partial

from arelu_meta.analysis.arms import Analysis, Arm, ArmComparison
from arelu_meta.analysis.controls import Control, explained_arm
from arelu_meta.analysis.estimates import Estimate, estimate_mean, paired_difference
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.improvement import BEST_RUN, improvements
from arelu_meta.analysis.rates import GOOD, advantage_changes, good_decades
from arelu_meta.analysis.settings import setting_label
from arelu_meta.analysis.speed import is_speed
from arelu_meta.reporting.numbers import NumberFormat, p_value
from arelu_meta.reporting.table import (
    PERMUTATION,
    ReportTable,
    difference_column,
    learned_heading,
    make_column,
    p_column,
    verdict_column,
)


def control_table(controls: Sequence[Control], subject: str, label: str, numbers: NumberFormat) -> ReportTable:
    """Lay out the explained arm less each of its controls."""
    tests = [control.test for control in controls]
    family = max(test.family for test in tests)
    flips = (math.nan if test.difference.identical else test.difference.p_permutation for test in tests)
    columns = (
        make_column("control", "", (control.arm for control in controls)),
        make_column("lacks", "", (control.lacks for control in controls)),
        make_column("n", "seeds in which both learned", (test.difference.n for test in tests)),
        difference_column(f"{subject} less control", tests, numbers, family),
        p_column(tests, family),
        make_column("p perm.", PERMUTATION, flips, p_value),
        verdict_column(tests, numbers),
    )
    return ReportTable(f"{subject} against its controls" + (f", {label}" if label else ""), columns)


def beyond_mean_table(findings: Findings, comparison: ArmComparison, numbers: NumberFormat) -> ReportTable:
    """Share of trainings that learned, median, interquartile mean, and how often each arm is ahead of the baseline."""
    arms, share = comparison.arms, NumberFormat(0, "%")
    ahead = [arm.improvement if arm.improvement and arm.improvement.n else None for arm in arms]
    exact = "with the exact 95 % interval of Clopper and Pearson"
    learned, counted = learned_heading(findings)
    unit = f" ({numbers.unit})" if numbers.unit else ""
    columns = [
        make_column(findings.arm, "", (arm.name for arm in arms)),
        make_column(f"{learned} (%)", f"{counted}, {exact}", (arm.learned for arm in arms), share.with_interval),
        make_column(f"median{unit}", "of all results", (arm.median for arm in arms), numbers.value),
        make_column(
            f"interquartile mean{unit}",
            "of the middle half of all results",
            (arm.interquartile_mean for arm in arms),
            numbers.value,
        ),
        make_column(
            f"best run{unit}", "of all seeds; it rises with their number", (arm.best for arm in arms), numbers.value
        ),
    ]
    for source in comparison.published_sources:
        if source[0] == findings.metric + BEST_RUN:
            figures = (arm.published.get(source, math.nan) for arm in arms)
            columns.append(make_column("published best run", ", ".join(source[1:]), figures, numbers.value))
    if any(ahead):
        meaning = f"seeds in which the arm is ahead, of those in which the two differ, {exact}"
        columns.append(make_column(f"ahead of {findings.baseline} (%)", meaning, ahead, share.with_interval))
    if findings.margin:
        more = (arm.test.further_seeds if arm.test and not arm.test.failing else None for arm in arms)
        size = numbers.amount(findings.margin)
        meaning = f"beyond those at hand until a difference of {size} is found with 80 % power, at the observed sd"
        columns.append(make_column("further seeds", meaning, more))
    return ReportTable("beyond the mean" + (f", {comparison.label}" if comparison.label else ""), tuple(columns))


def power_table(findings: Findings, comparison: ArmComparison, numbers: NumberFormat) -> ReportTable | None:
    """What these seeds would have found, and how many more would find a difference; None where nothing was tested."""
    arms = [arm for arm in comparison.arms if arm.test is not None]
    tests = [arm.test for arm in arms if arm.test is not None]
    if not comparison.tested:
        return None
    points = f" ({numbers.difference_unit})" if numbers.difference_unit else ""
    size = numbers.amount(findings.margin) if findings.margin else "the size seen"
    further = (test.further_seeds_for(test.margin or abs(test.difference.estimate.mean)) for test in tests)
    finds = "true difference that so many pairs find with 80 % power, at the observed sd"
    more = f"beyond those at hand until a difference of {size} is found with 80 % power; a dash: more than 10,000"
    columns = (
        make_column(findings.arm, "", (arm.name for arm in arms)),
        make_column("pairs", f"seeds shared with {findings.baseline}", (test.difference.n for test in tests)),
        make_column(f"sd{points}", "of the differences", (test.difference.sd for test in tests), numbers.value),
        make_column(f"detectable{points}", finds, (test.detectable for test in tests), numbers.value),
        make_column(f"further seeds for {size}", more, further),
    )
    return ReportTable("what these seeds can find", columns)


def improvement_table(analysis: Analysis, comparison: ArmComparison, numbers: NumberFormat) -> ReportTable | None:
    """The explained arm less the best of each group, beside the same of the published figures; None without those."""
    found = improvements(analysis, comparison)
    if not found:
        return None
    subject = explained_arm(analysis.findings, comparison)
    points = f" ({numbers.difference_unit})" if numbers.difference_unit else ""
    published = "the same of the published figures, with all arms that were published"
    sizes = (
        (f"mean{points}", f"{subject} less the best mean of the group, of all runs", [one.mean for one in found]),
        ("published mean", published, [one.published_mean for one in found]),
        (f"best run{points}", f"{subject} less the best run of the group", [one.best_run for one in found]),
        ("published best run", published, [one.published_best_run for one in found]),
    )
    shown = [size for size in sizes if not all(math.isnan(value) for value in size[2])]
    settings = [setting_label(one.setting) for one in found]
    columns = (
        *([make_column("setting", "", settings)] if any(settings) else []),
        make_column("over the best", "of these arms, as far as they are here", (one.group for one in found)),
        make_column(
            "which is", "by its mean; not tested, because it is chosen by its result", (one.best for one in found)
        ),
        *(make_column(heading, meaning, values, numbers.signed) for heading, meaning, values in shown),
    )
    label = f", {setting_label(comparison.setting)}" if comparison.setting else ""
    return ReportTable(f"improvement of {subject} over the best of the others{label}", columns)


def choice_table(analysis: Analysis, comparison: ArmComparison, numbers: NumberFormat) -> ReportTable | None:
    """What the choice of a setting is worth: with the seed left out, and how wide the good range is."""
    findings, arms = analysis.findings, comparison.arms
    baseline = comparison.arm(findings.baseline)
    if not comparison.matched:
        return None
    left_out = [_left_out(findings, arm) for arm in arms]
    unit = f" ({numbers.unit})" if numbers.unit else ""
    columns = [
        make_column(findings.arm, "", (arm.name for arm in arms)),
        make_column(
            f"all seeds choose{unit}",
            "mean of all results there, of trainings that failed too",
            (
                estimate_mean(arm.results.dropna().to_numpy(), overlap=findings.correction).within(*findings.limits())
                for arm in arms
            ),
            numbers.with_interval,
        ),
        make_column(
            f"seed left out{unit}",
            "mean of all results where each seed is judged at the setting that the others choose, 95 % t interval",
            left_out,
            numbers.with_interval,
        ),
        make_column(
            "n left out",
            "seeds that have a result there",
            (arm.left_out.count() if arm.left_out is not None else 0 for arm in arms),
        ),
    ]
    if baseline is not None and baseline.left_out is not None:
        points = f" ({numbers.difference_unit})" if numbers.difference_unit else ""
        meaning = "paired, 95 % t interval; a guide: the choices of two seeds share most of what they rest on"
        differences = [None if arm is baseline else _left_out(findings, arm, baseline) for arm in arms]
        signed = partial(numbers.with_interval, signed=True)
        columns.append(make_column(f"left out, to {baseline.name}{points}", meaning, differences, signed))
    widths = good_decades(analysis, comparison)
    if widths:
        meaning = f"powers of ten around the best value whose validation mean is within {GOOD:g} points of it"
        columns.append(
            make_column(
                "good decades", meaning, (widths.get(arm.name, math.nan) for arm in arms), NumberFormat(1).value
            )
        )
    return ReportTable(f"the choice of a setting, {comparison.label}", tuple(columns))


def _left_out(findings: Findings, arm: Arm, other: Arm | None = None) -> Estimate | None:
    """The mean of the results with the seed left out, or of their differences to another arm's."""
    if arm.left_out is None or arm.left_out.dropna().empty:
        return None
    low, high = findings.limits()
    if other is None:
        return estimate_mean(arm.left_out.dropna().to_numpy(), overlap=findings.correction).within(low, high)
    if other.left_out is None:
        return None
    pair = paired_difference(arm.left_out.dropna(), other.left_out.dropna(), overlap=findings.correction)
    return pair.estimate.within(low - high, high - low) if pair.n else None


def change_table(analysis: Analysis, comparison: ArmComparison, numbers: NumberFormat) -> ReportTable | None:
    """Whether the explained arm's advantage in a shared setting remains with each arm at its own."""
    findings = analysis.findings
    changes = advantage_changes(analysis, comparison)
    if not changes:
        return None
    tests = [change.test for change in changes]
    family = max(test.family for test in tests)
    subject = explained_arm(findings, comparison)
    points = f" ({numbers.difference_unit})" if numbers.difference_unit else ""
    primary = "; the smallest by itself" if family > 1 else ""
    columns = (
        make_column("shared setting", "", (setting_label(change.setting) for change in changes)),
        make_column("n", "seeds", (test.difference.n for test in tests)),
        make_column(
            f"advantage there{points}",
            f"{subject} less {findings.baseline}",
            (change.there for change in changes),
            numbers.signed,
        ),
        make_column(
            f"at own settings{points}", "of the same seeds", (change.own for change in changes), numbers.signed
        ),
        difference_column("change", tests, numbers, family, primary),
        p_column(tests, family, primary),
        make_column("verdict", "of the change: a difference of differences", (str(test.outcome) for test in tests)),
    )
    label = f", {setting_label(comparison.setting)}" if comparison.setting else ""
    return ReportTable(f"{subject} over {findings.baseline} at a shared setting and at their own{label}", columns)


def other_metrics_table(findings: Findings, comparison: ArmComparison) -> ReportTable | None:
    """Other metrics of the same runs, not tested, and what was published of them; None where runs have none."""
    arms = comparison.arms
    columns = [make_column(findings.arm, "", (arm.name for arm in arms))]
    for metric, published in findings.other_metrics.items():
        if is_speed(metric):  # tested, in a table of its own
            continue
        estimates = [arm.other_metrics.get(metric) for arm in arms]
        means = [estimate.mean for estimate in estimates if estimate is not None]
        if not means:
            continue
        numbers = NumberFormat.for_values(means, findings.units.get(metric, ""))
        meaning = "mean over seeds with Student's 95 % interval"
        columns.append(make_column(metric, meaning, estimates, numbers.with_interval))
        sources = [source for source in comparison.published_sources if source[0] == published]
        for number, source in enumerate(sources, 1):
            heading = f"published {published}" + (f" ({number})" if len(sources) > 1 else "")
            figures = (arm.published.get(source, math.nan) for arm in arms)
            columns.append(make_column(heading, ", ".join(filter(None, source[1:])), figures, NumberFormat(2).value))
    title = "further measures of the same runs" + (f", {comparison.label}" if comparison.label else "")
    return ReportTable(title, tuple(columns)) if len(columns) > 1 else None
