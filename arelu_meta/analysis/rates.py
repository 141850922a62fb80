"""How results depend on a setting that arms may choose: the width of the good range, and what becomes of advantages."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from arelu_meta.analysis.arms import Analysis, ArmComparison
from arelu_meta.analysis.controls import explained_arm
from arelu_meta.analysis.decisions import PairedTest, family_sizes
from arelu_meta.analysis.estimates import paired_difference
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import (
    AxisSetting,
    checked_runs,
    rows_by_setting,
    same_value,
    setting_label,
    tuned_axes,
)

GOOD = 2.0  # points


def good_range(findings: Findings, rows: pd.DataFrame, axis: str) -> tuple[float, float]:
    """The smallest and largest value of an axis around the best one within 2 points of it on validation.

    Args:
        findings: What the rows are of.
        rows: Runs of one arm.
        axis: A setting that is a number.

    Returns:
        The ends of the range; between them no value that was tried is worse. NaN without a validation metric. A value
        at which a training diverged is not good.
    """
    metric = findings.validation_metric
    if metric is None or metric not in rows or not len(rows):
        return math.nan, math.nan
    scores = pd.to_numeric(rows[metric], errors="coerce").astype(float).replace([math.inf, -math.inf], math.nan)
    means = scores.groupby(rows[axis]).agg(lambda own: own.mean(skipna=False)).sort_index()
    if means.isna().all():
        return math.nan, math.nan
    good = (means >= means.max() - GOOD).to_numpy()
    first = last = int(np.nanargmax(means.to_numpy()))
    while first > 0 and good[first - 1]:
        first -= 1
    while last < len(good) - 1 and good[last + 1]:
        last += 1
    return float(means.index[first]), float(means.index[last])


def good_decades(analysis: Analysis, comparison: ArmComparison) -> dict[str, float]:
    """The width of each arm's good range in powers of ten; empty where not one number is tuned, or none is a share."""
    findings = analysis.findings
    axes = tuned_axes(findings)
    share = findings.units.get(str(findings.validation_metric)) == "%"
    if not share or len(axes) != 1 or not pd.api.types.is_numeric_dtype(findings.runs[axes[0]]):
        return {}
    if not (findings.runs[axes[0]] > 0).all():
        return {}
    runs, widths = checked_runs(findings), {}
    for setting, rows in rows_by_setting(runs, tuple(axis for axis, _ in comparison.setting)):
        if setting == comparison.setting:
            for name, own in rows.groupby(findings.arm, sort=False):
                low, high = good_range(findings, own, axes[0])
                widths[str(name)] = math.log10(high / low) if high >= low else math.nan
    return widths


@dataclass(frozen=True, eq=False)
class AdvantageChange:
    """An arm's advantage over the baseline in one setting less that with each at its own: a difference of differences.

    Above 0, part of what was seen in that setting is gone once each arm has its own.
    """

    setting: AxisSetting
    there: float
    """Mean advantage in the setting."""
    own: float
    """Mean advantage with each arm at its own setting."""
    test: PairedTest
    declared: bool
    """Whether it is the comparison that was decided on beforehand: at the smallest setting."""


def advantage_changes(analysis: Analysis, comparison: ArmComparison) -> list[AdvantageChange]:
    """Test how the explained arm's advantage changes from each fixed setting to a matched comparison.

    The smallest value of the tuned axis is the declared comparison, since the claim is about small rates: it is tested
    by itself, and the others are corrected together. Empty where nothing is tuned.
    """
    findings = analysis.findings
    axes = tuned_axes(findings)
    subject, baseline = comparison.arm(explained_arm(findings, comparison)), comparison.arm(findings.baseline)
    if not comparison.matched or len(axes) != 1 or subject is None or baseline is None:
        return []
    matched = paired_difference(subject.values, baseline.values).differences
    found = []
    for fixed in analysis.fixed:
        rest = tuple(pair for pair in fixed.setting if pair[0] != axes[0])
        arm, other = fixed.arm(subject.name), fixed.arm(findings.baseline)
        if arm is None or other is None or arm.difference is None or not _same_setting(rest, comparison.setting):
            continue
        change = paired_difference(arm.difference.differences, matched, overlap=findings.correction)
        if change.n > 1:
            found.append((fixed.setting, arm.difference, change, any(one.mixed for one in (arm, other))))
    pairs = {setting_label(setting): change for setting, _, change, _ in found}
    numbers = {setting_label(setting): dict(setting)[axes[0]] for setting, *_ in found}
    numeric = all(isinstance(value, int | float | np.number) for value in numbers.values())
    first = min(numbers, key=lambda label: float(numbers[label])) if numbers and numeric else None
    families = family_sizes(pairs, first)
    own_fails = subject.mixed or baseline.mixed
    limit = 2 * (findings.limits()[1] - findings.limits()[0])
    changes = []
    for setting, there, change, mixed in found:
        fails, seeds = mixed or own_fails, change.differences.index
        test = PairedTest(change, families[setting_label(setting)], None, fails, fails, limit)
        means = float(there.differences[seeds].mean()), float(matched[seeds].mean())
        changes.append(AdvantageChange(setting, *means, test, setting_label(setting) == first))
    return changes


def _same_setting(one: AxisSetting, other: AxisSetting) -> bool:
    return len(one) == len(other) and all(
        left[0] == right[0] and same_value(left[1], right[1]) for left, right in zip(one, other, strict=True)
    )
