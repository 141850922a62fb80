"""From findings to conclusions: every arm with its interval, its difference to the baseline, and corrected tests."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from arelu_meta.analysis.arms import ALPHA, Arm, Comparison
from arelu_meta.analysis.bootstrap import bca_interval
from arelu_meta.analysis.episodes import episode_pairs
from arelu_meta.analysis.estimates import Estimate
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.holm import holm
from arelu_meta.analysis.matching import Choice, choose
from arelu_meta.analysis.paired import compare, deviation, estimate
from arelu_meta.analysis.power import detectable_difference
from arelu_meta.analysis.published import published_rows
from arelu_meta.analysis.settings import Setting, checked_runs, settings, tuned_axes


@dataclass(frozen=True, eq=False)
class Analysis:
    """Everything concluded: the comparisons at fixed settings, and those with settings matched on validation."""

    findings: Findings
    fixed: tuple[Comparison, ...]
    matched: tuple[Comparison, ...]

    @property
    def judged(self) -> tuple[Comparison, ...]:
        """The comparisons that verdicts are about: fair to every arm where that can be had."""
        return self.matched or self.fixed

    @property
    def all(self) -> tuple[Comparison, ...]:
        """Judged ones first."""
        return (*self.matched, *self.fixed)


def analyse(findings: Findings) -> Analysis:
    """Compute everything that tables, figures and words are made of."""
    runs = checked_runs(findings)
    if runs.empty:
        return Analysis(findings, (), ())
    return Analysis(findings, tuple(_fixed(findings, runs)), tuple(_matched(findings, runs)))


def _fixed(findings: Findings, runs: pd.DataFrame) -> list[Comparison]:
    others = tuple(axis for axis in findings.axes if axis != findings.arm)
    comparisons = []
    for setting, rows in settings(runs, others):
        by_arm = {str(name): own.set_index("seed") for name, own in rows.groupby(findings.arm, sort=False)}
        arms = [_arm(findings, name, own, setting) for name, own in by_arm.items()]
        comparisons.append(Comparison(setting, False, _tested(findings, arms, by_arm), findings.baseline))
    return comparisons


def _matched(findings: Findings, runs: pd.DataFrame) -> list[Comparison]:
    tuned = tuned_axes(findings)
    if not tuned or findings.validation_metric is None or findings.validation_metric not in runs:
        return []
    others = tuple(axis for axis in findings.axes if axis != findings.arm and axis not in tuned)
    comparisons = []
    for setting, rows in settings(runs, others):
        found = {str(name): choose(findings, own, tuned) for name, own in rows.groupby(findings.arm, sort=False)}
        by_arm = {name: choice.rows.set_index("seed") for name, choice in found.items()}
        arms = [
            _arm(findings, name, by_arm[name], (*setting, *choice.setting), choice) for name, choice in found.items()
        ]
        comparisons.append(Comparison(setting, True, _tested(findings, arms, by_arm), findings.baseline))
    return comparisons


def _arm(findings: Findings, name: str, rows: pd.DataFrame, setting: Setting, choice: Choice | None = None) -> Arm:
    values = rows[findings.metric].sort_index()
    finite = values[np.isfinite(values)]
    raw = finite.to_numpy()
    return Arm(
        name=name,
        setting=setting,
        values=finite,
        lost=tuple(int(seed) for seed in values.index.difference(finite.index)),
        estimate=estimate(raw),
        sd=deviation(raw),
        bootstrap=bca_interval(raw),
        seconds=float(rows["seconds"].sum()) if "seconds" in rows else math.nan,
        published=published_rows(findings.published, {findings.arm: name, **dict(setting)}),
        further={metric: _estimate(rows[metric]) for metric in findings.further if metric in rows},
        choice=choice,
    )


def _estimate(values: pd.Series) -> Estimate:
    return estimate(values[np.isfinite(values)].to_numpy())


def _tested(findings: Findings, arms: list[Arm], by_arm: dict[str, pd.DataFrame]) -> tuple[Arm, ...]:
    """Add differences to the baseline, corrected over the arms; best arm first."""
    baseline = next((arm for arm in arms if arm.name == findings.baseline), None)
    others = [arm for arm in arms if arm is not baseline]
    if baseline is not None:
        others = _corrected(findings, others, baseline, by_arm)
        arms = [baseline, *others]
    sign = -1 if findings.higher_is_better else 1
    return tuple(sorted(arms, key=lambda arm: (math.isnan(arm.estimate.mean), sign * arm.estimate.mean)))


def _corrected(findings: Findings, arms: list[Arm], baseline: Arm, by_arm: dict[str, pd.DataFrame]) -> list[Arm]:
    pairs = [compare(arm.values, baseline.values) for arm in arms]
    corrected = holm([pair.p_t for pair in pairs])
    flipped = holm([pair.p_permutation for pair in pairs])
    family = max(sum(not math.isnan(p) for p in corrected), 1)
    return [
        replace(
            arm,
            difference=pair,
            episodes=episode_pairs(by_arm[arm.name], by_arm[baseline.name], findings.metric, findings.episodes),
            p_holm=p,
            p_permutation_holm=p_flipped,
            detectable=detectable_difference(pair.sd, pair.n, alpha=ALPHA / family),
        )
        for arm, pair, p, p_flipped in zip(arms, pairs, corrected, flipped, strict=True)
    ]
