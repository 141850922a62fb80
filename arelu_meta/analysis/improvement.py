"""By how much an arm leads the best of each group of others, as papers print it: on the mean and on the best run."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from arelu_meta.analysis.arms import Analysis, ArmComparison
from arelu_meta.analysis.controls import explained_arm
from arelu_meta.analysis.settings import AxisSetting, published_values, same_value

BEST_RUN = "_best_run"
"""What follows the name of a metric in published figures of the best of several runs."""


@dataclass(frozen=True)
class Improvement:
    """The explained arm less the best other arm of a group, in one setting; NaN where there is none.

    Nothing of it is tested: which arm is the best is seen from the results themselves.
    """

    setting: AxisSetting
    group: str
    best: str
    """The arm of the group with the best mean."""
    mean: float
    """Of all runs that have a result, whether they learned or not."""
    published_mean: float
    best_run: float
    published_best_run: float


def improvements(analysis: Analysis, comparison: ArmComparison) -> list[Improvement]:
    """Compare the explained arm with the best of each group, in every fixed setting of a comparison.

    Published figures are compared among themselves, with all arms that were published; empty where there are none.
    """
    findings = analysis.findings
    subject, table = explained_arm(findings, comparison), findings.published
    if subject is None or table is None:
        return []
    printed = {str(name): rows for name, rows in table.groupby(findings.arm)}
    found = []
    for fixed in analysis.fixed:
        here = dict(fixed.setting)
        if not all(axis in here and same_value(here[axis], value) for axis, value in comparison.setting):
            continue
        figures: dict[str, dict[str, float]] = {findings.metric: {}, findings.metric + BEST_RUN: {}}
        for name, rows in printed.items():
            for (metric, *_), value in published_values(rows, {findings.arm: name, **here}).items():
                figures.setdefault(metric, {}).setdefault(name, value)
        means = {arm.name: float(arm.results.mean()) for arm in fixed.arms}
        bests = {arm.name: arm.best for arm in fixed.arms}
        for group in dict.fromkeys(findings.groups.values()):
            others = [name for name, own in findings.groups.items() if own == group and name != subject]
            leads = [
                _lead(values, subject, others, higher_is_better=findings.higher_is_better)
                for values in (means, figures[findings.metric], bests, figures[findings.metric + BEST_RUN])
            ]
            if leads[0][0] and any(name for name, _ in leads[1::2]):
                found.append(Improvement(fixed.setting, group, leads[0][0], *(size for _, size in leads)))
    return found


def _lead(
    values: Mapping[str, float], subject: str, others: Iterable[str], *, higher_is_better: bool
) -> tuple[str, float]:
    """The best of the others, and how far it lies below the subject; an empty name where one of them is missing."""
    known = {name: values[name] for name in others if not math.isnan(values.get(name, math.nan))}
    if not known or math.isnan(values.get(subject, math.nan)):
        return "", math.nan
    best = (max if higher_is_better else min)(known, key=lambda name: known[name])
    return best, values[subject] - known[best]
