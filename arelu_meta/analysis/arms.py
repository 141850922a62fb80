"""From findings to conclusions: every arm with its interval, its difference to the baseline, and corrected tests."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from arelu_meta.analysis.decisions import Outcome, PairedTest, family_sizes
from arelu_meta.analysis.episodes import EpisodePairs, episode_pairs
from arelu_meta.analysis.estimates import (
    Estimate,
    PairedDifference,
    estimate_mean,
    paired_difference,
    standard_deviation,
)
from arelu_meta.analysis.failures import COLLAPSED, NOT_REACHED, exact_proportion_interval, failed_trainings
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.resampling import over_splits
from arelu_meta.analysis.robust import interquartile_mean, probability_of_improvement
from arelu_meta.analysis.settings import (
    AxisSetting,
    Choice,
    SourceKey,
    checked_runs,
    choose_setting,
    left_out_results,
    published_values,
    rows_by_setting,
    setting_label,
    tuned_axes,
)
from arelu_meta.analysis.speed import is_speed, speed_findings


@dataclass(frozen=True, eq=False)
class Arm:
    """One arm in one setting."""

    name: str
    """Its value on the axis that is compared."""
    setting: AxisSetting
    results: pd.Series
    """The metric by seed, NaN where a run finished without a number."""
    failed: Mapping[int, str]
    """Seeds whose training failed, with the reason."""
    values: pd.Series
    """Results of the trainings that learned; of all that have one where none learned."""
    learned: Estimate
    """The share of trainings that learned, in per cent, with its exact interval."""
    median: float
    """Of all results, failed or not; so are the next two."""
    interquartile_mean: float
    """Mean of the middle half."""
    best: float
    """As papers print it."""
    estimate: Estimate
    """Mean of these values."""
    sd: float
    """Standard deviation of these values."""
    seconds: float
    """Mean time of a run."""
    published: Mapping[SourceKey, float]
    """By source: protocols are never mixed."""
    other_metrics: Mapping[str, Estimate] = field(default_factory=dict)
    """Other metrics of the same runs."""
    choice: Choice | None = None
    """How the setting was chosen, where each arm has its own."""
    left_out: pd.Series | None = None
    """Results by seed at the setting that the other seeds choose, where each arm has its own."""
    test: PairedTest | None = None
    """Against the baseline."""
    improvement: Estimate | None = None
    """How often it is ahead of the baseline on the same seed, in per cent of all trainings."""
    episodes: EpisodePairs | None = None
    """To the baseline, over the fixed test episodes."""

    @property
    def difference(self) -> PairedDifference | None:
        """To the baseline, of the trainings in which both learned."""
        return self.test.difference if self.test else None

    @property
    def outcome(self) -> Outcome | None:
        """What the comparison with the baseline comes to; None for the baseline."""
        return self.test.outcome if self.test else None

    @property
    def differs(self) -> bool:
        """Whether it differs detectably from the baseline."""
        return self.test is not None and self.test.differs

    @property
    def mixed(self) -> bool:
        """Whether some trainings failed and others did not."""
        return 0 < len(self.failed) < len(self.results)


@dataclass(frozen=True, eq=False)
class ArmComparison:
    """All arms in one setting, or each at the setting of its own choice; best first."""

    setting: AxisSetting
    matched: bool
    """Whether each arm has the setting of its own choice."""
    arms: tuple[Arm, ...]
    baseline: str
    """Name of the arm that all others are tested against."""
    unit: str = "seed"
    """What a value of an arm is of: a seed, or a split with its seeds averaged."""

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
        return tuple(arm for arm in self.arms if arm.outcome not in (None, Outcome.UNTESTED))

    @property
    def family(self) -> int:
        """How many comparisons are corrected together."""
        return max((arm.test.family for arm in self.arms if arm.test), default=1)

    @property
    def seeds(self) -> str:
        """How many seeds, or splits, stand behind the arms: `n = 5 seeds`, `n = 3 to 5 seeds`."""
        sizes = {arm.estimate.n for arm in self.arms}
        low, high = min(sizes), max(sizes)
        return f"n = {low} {self.unit}{'s' * (low != 1)}" if low == high else f"n = {low} to {high} {self.unit}s"

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
    """What was analysed."""
    fixed: tuple[ArmComparison, ...]
    matched: tuple[ArmComparison, ...]
    """Comparisons of arms at settings of their own; empty where there was no choice."""
    speeds: tuple["Analysis", ...] = ()
    """The same comparisons by each measure of speed among the other metrics."""

    @property
    def primary(self) -> tuple[ArmComparison, ...]:
        """The comparisons that verdicts are about: each arm at its best setting where there is a choice."""
        return self.matched or self.fixed


def analyse(findings: Findings) -> Analysis:
    """Compare all arms of findings: paired, corrected, at fixed settings and at settings chosen on validation.

    Args:
        findings: Results of runs, one row each.

    Returns:
        Comparisons with an `Arm` for each value of the arm axis, best first; empty where there are no runs. Measures of
        speed among the other metrics are compared in the same way.

    Raises:
        InputError: A column is missing, or two runs have the same axes and seed.

    Example:
        >>> runs = pd.DataFrame({"activation": ["relu"] * 3 + ["arelu"] * 3, "seed": [0, 1, 2] * 2,
        ...                      "test/accuracy": [80.0, 82.0, 84.0, 85.0, 88.0, 89.5]})
        >>> found = Findings("mine", "", "", runs, ("activation",), "activation", "relu", "test/accuracy")
        >>> (comparison,) = analyse(found).primary
        >>> arm = comparison.arm("arelu")
        >>> arm.difference.differences.to_dict(), round(arm.test.p, 4), str(arm.outcome)
        ({0: 5.0, 1: 6.0, 2: 5.5}, 0.0027, 'different')
    """
    findings = over_splits(findings)
    runs = checked_runs(findings)
    if runs.empty:
        return Analysis(findings, (), ())
    tuned = tuned_axes(findings)
    fixed = _comparisons(findings, runs, ())
    choosable = tuned and findings.validation_metric is not None and findings.validation_metric in runs
    matched = _comparisons(findings, runs, tuned) if choosable else ()
    by_speed = (speed_findings(findings, metric) for metric in findings.other_metrics if is_speed(metric))
    return Analysis(findings, fixed, matched, tuple(analyse(found) for found in by_speed if len(found.runs)))


def _comparisons(findings: Findings, runs: pd.DataFrame, tuned: tuple[str, ...]) -> tuple[ArmComparison, ...]:
    """One per setting of the axes that are not tuned; of the tuned ones each arm has its own choice."""
    others = tuple(axis for axis in findings.axes if axis != findings.arm and axis not in tuned)
    comparisons = []
    for setting, rows in rows_by_setting(runs, others):
        arms, by_arm = [], {}
        for name, own in rows.groupby(findings.arm, sort=False):
            choice = choose_setting(findings, own, tuned) if tuned else None
            by_arm[name] = (choice.rows if choice else own).set_index("seed")
            arm = _arm(findings, name, by_arm[name], setting, choice)
            arms.append(replace(arm, left_out=left_out_results(findings, own, tuned)) if tuned else arm)
        baseline = next((arm for arm in arms if arm.name == findings.baseline), None)
        if baseline is not None:
            tested = _tested(findings, [arm for arm in arms if arm is not baseline], baseline, by_arm)
            arms = [baseline, *tested]
        sign = -1 if findings.higher_is_better else 1
        arms.sort(key=lambda arm: (math.isnan(arm.estimate.mean), sign * arm.estimate.mean))
        unit = "split" if findings.single_runs is not None else "seed"
        comparisons.append(ArmComparison(setting, bool(tuned), tuple(arms), findings.baseline, unit))
    return tuple(comparisons)


def _arm(findings: Findings, name: str, rows: pd.DataFrame, setting: AxisSetting, choice: Choice | None) -> Arm:
    rows = rows.sort_index()
    results = rows[findings.metric].where(np.isfinite(rows[findings.metric]))
    failed = failed_trainings(rows.get(findings.failure_metric, results), rows.get(COLLAPSED), findings.chance)
    failed |= {seed: NOT_REACHED for seed in results.index[results.isna()] if seed not in failed}
    learned = results.drop(list(failed))
    values = learned if len(learned) else results.dropna()
    raw = values.to_numpy()
    setting = (*setting, *choice.setting) if choice else setting
    others = {metric: rows[metric] for metric in findings.other_metrics if metric in rows}
    return Arm(
        name=name,
        setting=setting,
        results=results,
        failed=failed,
        values=values,
        learned=exact_proportion_interval(len(learned), len(results)),
        median=float(results.median()),
        interquartile_mean=interquartile_mean(results.dropna().to_numpy()),
        best=float(results.max() if findings.higher_is_better else results.min()),
        estimate=estimate_mean(raw, overlap=findings.correction).within(*findings.limits()),
        sd=standard_deviation(raw),
        seconds=float(rows["seconds"].sum()) if "seconds" in rows else math.nan,
        published=published_values(findings.published, {findings.arm: name, **dict(setting)}),
        other_metrics={
            metric: estimate_mean(own[np.isfinite(own)].to_numpy(), overlap=findings.correction).within(
                *findings.limits(metric)
            )
            for metric, own in others.items()
        },
        choice=choice,
    )


def paired_test(findings: Findings, arm: Arm, other: Arm, pair: PairedDifference, family: int) -> PairedTest:
    """Judge a difference of two arms, knowing which of their trainings failed."""
    better = arm if is_better(findings, pair) else other
    low, high = findings.limits()
    return PairedTest(pair, family, findings.margin, arm.mixed or other.mixed, better.mixed, high - low)


def _tested(findings: Findings, arms: list[Arm], baseline: Arm, by_arm: dict[str, pd.DataFrame]) -> list[Arm]:
    """Add differences to the baseline, corrected over the arms."""
    overlap = findings.correction
    pairs = {arm.name: paired_difference(arm.values, baseline.values, overlap=overlap) for arm in arms}
    families = family_sizes(pairs, findings.primary)
    higher = findings.higher_is_better
    return [
        replace(
            arm,
            test=paired_test(findings, arm, baseline, pairs[arm.name], families[arm.name]),
            improvement=probability_of_improvement(arm.results, baseline.results, higher_is_better=higher),
            episodes=episode_pairs(by_arm[arm.name], by_arm[baseline.name], findings.metric, findings.episodes),
        )
        for arm in arms
    ]


def is_better(findings: Findings, difference: PairedDifference) -> bool:
    """Whether a difference is an improvement, whatever the metric calls good."""
    return (difference.estimate.mean > 0) == findings.higher_is_better


def count_better_and_worse(findings: Findings, arms: Iterable[Arm]) -> tuple[int, int]:
    """How many arms are detectably better than the baseline, and how many worse."""
    differing = [arm.difference for arm in arms if arm.differs and arm.difference is not None]
    better = sum(is_better(findings, difference) for difference in differing)
    return better, len(differing) - better
