"""From findings to conclusions: every arm with its interval, its difference to the baseline, and corrected tests."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from arelu_meta.analysis.episodes import EpisodePairs, episode_pairs
from arelu_meta.analysis.estimates import (
    Estimate,
    PairedDifference,
    detectable_difference,
    estimate_mean,
    holm,
    paired_difference,
    standard_deviation,
)
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import (
    AxisSetting,
    Choice,
    SourceKey,
    checked_runs,
    choose_setting,
    published_values,
    rows_by_setting,
    setting_label,
    tuned_axes,
)

ALPHA = 0.05
DEFAULT_EXPLAINED = "arelu"


@dataclass(frozen=True, eq=False)
class Arm:
    """One arm in one setting."""

    name: str
    setting: AxisSetting
    values: pd.Series
    """The metric by seed, where it is a number."""
    diverged: tuple[int, ...]
    """Seeds whose run finished without a number."""
    estimate: Estimate
    sd: float
    seconds: float
    published: Mapping[SourceKey, float]
    """By source: protocols are never mixed."""
    other_metrics: Mapping[str, Estimate] = field(default_factory=dict)
    """Other metrics of the same runs."""
    choice: Choice | None = None
    """How the setting was chosen, where each arm has its own."""
    difference: PairedDifference | None = None
    """To the baseline."""
    episodes: EpisodePairs | None = None
    """To the baseline, over the fixed test episodes."""
    p_holm: float = math.nan
    """Of the paired t test, corrected over the arms."""
    p_permutation_holm: float = math.nan
    detectable: float = math.nan
    """The difference to the baseline that would have been found with 80 % power at the corrected level."""

    @property
    def differs(self) -> bool:
        """Whether it differs detectably from the baseline."""
        return self.p_holm < ALPHA


@dataclass(frozen=True, eq=False)
class ArmComparison:
    """All arms in one setting, or each at the setting of its own choice; best first."""

    setting: AxisSetting
    matched: bool
    arms: tuple[Arm, ...]
    baseline: str

    @property
    def label(self) -> str:
        """What tells this comparison from the others of the findings."""
        if not self.matched:
            return setting_label(self.setting)
        own = ", ".join(axis for axis, _ in self.arms[0].setting if axis not in dict(self.setting))
        return "; ".join(text for text in (setting_label(self.setting), f"each arm at its best {own}") if text)

    @property
    def tested(self) -> tuple[Arm, ...]:
        """Arms for which the test against the baseline could be made."""
        return tuple(arm for arm in self.arms if not math.isnan(arm.p_holm))

    @property
    def seeds(self) -> str:
        """How many seeds stand behind the arms: `n = 5 seeds`, `n = 3 to 5 seeds`."""
        sizes = {arm.estimate.n for arm in self.arms}
        low, high = min(sizes), max(sizes)
        return f"n = {low} seed{'s' * (low != 1)}" if low == high else f"n = {low} to {high} seeds"

    @property
    def published_sources(self) -> list[SourceKey]:
        """The different sources of the arms' published values, in order."""
        return list(dict.fromkeys(source for arm in self.arms for source in arm.published))

    def arm(self, name: str | None) -> Arm | None:
        """Find an arm by name."""
        return next((arm for arm in self.arms if arm.name == name), None)


@dataclass(frozen=True, eq=False)
class Analysis:
    """Everything concluded: the comparisons at fixed settings, and those with settings matched on validation."""

    findings: Findings
    fixed: tuple[ArmComparison, ...]
    matched: tuple[ArmComparison, ...]

    @property
    def primary(self) -> tuple[ArmComparison, ...]:
        """The comparisons that verdicts are about: each arm at its best setting where there is a choice."""
        return self.matched or self.fixed


def analyse(findings: Findings) -> Analysis:
    """Compare all arms of findings: paired, Holm-corrected, at fixed settings and at settings chosen on validation.

    Args:
        findings: Results of runs, one row each.

    Returns:
        Comparisons with an `Arm` for each value of the arm axis, best first; empty where there are no runs.

    Raises:
        InputError: A column is missing, or two runs have the same axes and seed.

    Example:
        >>> runs = pd.DataFrame({"activation": ["relu"] * 3 + ["arelu"] * 3, "seed": [0, 1, 2] * 2,
        ...                      "test/accuracy": [80.0, 82.0, 84.0, 85.0, 88.0, 89.5]})
        >>> found = Findings("mine", "", "", runs, ("activation",), "activation", "relu", "test/accuracy")
        >>> (comparison,) = analyse(found).primary
        >>> arm = comparison.arm("arelu")
        >>> arm.difference.differences.to_dict(), round(arm.p_holm, 4), arm.differs
        ({0: 5.0, 1: 6.0, 2: 5.5}, 0.0027, True)
    """
    runs = checked_runs(findings)
    if runs.empty:
        return Analysis(findings, (), ())
    tuned = tuned_axes(findings)
    fixed = _comparisons(findings, runs, ())
    choosable = tuned and findings.validation_metric is not None and findings.validation_metric in runs
    return Analysis(findings, fixed, _comparisons(findings, runs, tuned) if choosable else ())


def _comparisons(findings: Findings, runs: pd.DataFrame, tuned: tuple[str, ...]) -> tuple[ArmComparison, ...]:
    """One per setting of the axes that are not tuned; of the tuned ones each arm has its own choice."""
    others = tuple(axis for axis in findings.axes if axis != findings.arm and axis not in tuned)
    comparisons = []
    for setting, rows in rows_by_setting(runs, others):
        arms, by_arm = [], {}
        for name, own in rows.groupby(findings.arm, sort=False):
            choice = choose_setting(findings, own, tuned) if tuned else None
            by_arm[name] = (choice.rows if choice else own).set_index("seed")
            arms.append(_arm(findings, name, by_arm[name], setting, choice))
        baseline = next((arm for arm in arms if arm.name == findings.baseline), None)
        if baseline is not None:
            tested = _tested(findings, [arm for arm in arms if arm is not baseline], baseline, by_arm)
            arms = [baseline, *tested]
        sign = -1 if findings.higher_is_better else 1
        arms.sort(key=lambda arm: (math.isnan(arm.estimate.mean), sign * arm.estimate.mean))
        comparisons.append(ArmComparison(setting, bool(tuned), tuple(arms), findings.baseline))
    return tuple(comparisons)


def _arm(findings: Findings, name: str, rows: pd.DataFrame, setting: AxisSetting, choice: Choice | None) -> Arm:
    values = rows[findings.metric].sort_index()
    finite = values[np.isfinite(values)]
    raw = finite.to_numpy()
    setting = (*setting, *choice.setting) if choice else setting
    others = {metric: rows[metric] for metric in findings.other_metrics if metric in rows}
    return Arm(
        name=name,
        setting=setting,
        values=finite,
        diverged=tuple(int(seed) for seed in values.index.difference(finite.index)),
        estimate=estimate_mean(raw),
        sd=standard_deviation(raw),
        seconds=float(rows["seconds"].sum()) if "seconds" in rows else math.nan,
        published=published_values(findings.published, {findings.arm: name, **dict(setting)}),
        other_metrics={metric: estimate_mean(own[np.isfinite(own)].to_numpy()) for metric, own in others.items()},
        choice=choice,
    )


def _tested(findings: Findings, arms: list[Arm], baseline: Arm, by_arm: dict[str, pd.DataFrame]) -> list[Arm]:
    """Add differences to the baseline, corrected over the arms."""
    pairs = [paired_difference(arm.values, baseline.values) for arm in arms]
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


def is_better(findings: Findings, difference: PairedDifference) -> bool:
    """Whether a difference is an improvement, whatever the metric calls good."""
    return (difference.estimate.mean > 0) == findings.higher_is_better


def count_better_and_worse(findings: Findings, arms: Iterable[Arm]) -> tuple[int, int]:
    """How many arms are detectably better than the baseline, and how many worse."""
    differing = [arm.difference for arm in arms if arm.differs and arm.difference is not None]
    better = sum(is_better(findings, difference) for difference in differing)
    return better, len(differing) - better


@dataclass(frozen=True, eq=False)
class Control:
    """The explained arm less one control, seed by seed: is it the shape, the learning or the gain?"""

    arm: str
    lacks: str
    difference: PairedDifference
    p_holm: float
    """Corrected over the controls."""

    @property
    def differs(self) -> bool:
        """Whether the explained arm differs detectably from it."""
        return self.p_holm < ALPHA


def explained_arm(findings: Findings, comparison: ArmComparison) -> str | None:
    """The arm that the controls explain: as the findings say, or `arelu`, or the only one there can be."""
    free = [arm.name for arm in comparison.arms if arm.name != findings.baseline and arm.name not in findings.controls]
    named = findings.explained if findings.explained is not None else DEFAULT_EXPLAINED
    if named in free:
        return named
    return free[0] if findings.explained is None and len(free) == 1 else None


def against_controls(findings: Findings, comparison: ArmComparison) -> list[Control]:
    """Compare the explained arm with each of its controls; empty where nothing can be tested."""
    subject = comparison.arm(explained_arm(findings, comparison))
    controls: Sequence[Arm | None] = [comparison.arm(name) for name in findings.controls] if subject else []
    pairs = {arm.name: paired_difference(subject.values, arm.values) for arm in controls if arm and subject}
    corrected = holm([pair.p_t for pair in pairs.values()])
    return [
        Control(name, findings.controls[name], pair, p)
        for (name, pair), p in zip(pairs.items(), corrected, strict=True)
        if not math.isnan(p)
    ]
