"""Notes: everything that limits the conclusions of a report."""

import math
import statistics

import pandas as pd

from arelu_meta.analysis.arms import Analysis, ArmComparison
from arelu_meta.analysis.decisions import ALPHA
from arelu_meta.analysis.estimates import smallest_sign_flip_p
from arelu_meta.analysis.failures import failure_text
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.rates import GOOD
from arelu_meta.analysis.resampling import SPLIT_AXIS
from arelu_meta.analysis.settings import setting_label, tuned_axes
from arelu_meta.reporting.numbers import NumberFormat, p_value

MIN_SEEDS_FOR_SPREAD, MIN_ARMS_FOR_SPREAD = 3, 3
WIDE_SPREAD = 3.0  # times the median standard deviation of the arms


def make_notes(analysis: Analysis) -> list[str]:
    """Everything that limits the conclusions of this analysis; what holds in all comparisons is said once."""
    findings = analysis.findings
    where: dict[str, list[str]] = {}
    for comparison in analysis.primary:
        makers = (_permutation_notes, _failure_notes, _seed_notes, _spread_notes, _choice_notes)
        for note in (note for make in makers for note in make(comparison)):
            where.setdefault(note, []).append(setting_label(comparison.setting))
    found = [
        note + ("" if len(labels) == len(analysis.primary) else f" ({'; '.join(labels)})") + "."
        for note, labels in where.items()
    ]
    found += _split_notes(findings) + _execution_notes(findings) + _origin_notes(findings) + _look_notes(findings)
    if tuned_axes(findings) and not analysis.matched:
        axes = ", ".join(tuned_axes(findings))
        found.append(f"There is no view with {axes} matched: choosing it per arm needs a validation metric.")
    if len(analysis.primary) > 1:
        found.append("p values are corrected within each table, not over the tables.")
    if analysis.speeds:
        found.append("Measures of speed are tested like the metric, each by itself: p is not corrected over measures.")
    return [*found, *findings.remarks]


def _permutation_notes(comparison: ArmComparison) -> list[str]:
    sizes = {arm.difference.n for arm in comparison.tested if arm.difference is not None}
    if not sizes:
        return []
    size, tests = max(sizes), comparison.family
    if smallest_sign_flip_p(size) > ALPHA / tests:
        over = f"{ALPHA:g}" + (f" corrected over {tests} arms" if tests > 1 else "")
        return [
            f"With {size} seeds the exact permutation test cannot go below p = {p_value(smallest_sign_flip_p(size))},"
            f" so it cannot confirm a difference at {over}; what is called detectable rests on the t test, which takes"
            " the differences over seeds for Gaussian"
        ]
    differing = [(arm.name, arm.test) for arm in comparison.arms if arm.test is not None and arm.differs]
    doubtful = [name for name, test in differing if test.difference.p_permutation * test.family >= ALPHA]
    return [f"Detectable by the t test but not by the permutation test: {', '.join(doubtful)}"] if doubtful else []


def _seed_notes(comparison: ArmComparison) -> list[str]:
    """Name the arms that have fewer seeds, one, none in common with the baseline, or differences without spread."""
    arms, baseline = comparison.arms, comparison.baseline
    pairs = {arm.name: arm.difference for arm in arms if arm.difference is not None}
    most = max(arm.estimate.n for arm in arms)
    fewer = ", ".join(f"{arm.name} (n = {arm.estimate.n})" for arm in arms if arm.estimate.n != most)
    single = ", ".join(arm.name for arm in arms if arm.estimate.n == 1)
    unpaired = ", ".join(name for name, pair in pairs.items() if pair.n == 0)
    constant = ", ".join(name for name, pair in pairs.items() if pair.constant and not pair.identical)
    identical = ", ".join(name for name, pair in pairs.items() if pair.identical)
    notes = (
        (f"Fewer seeds than the {most} of the others, paired where seeds are shared", fewer),
        ("One seed gives no interval and no test", single),
        (f"No seed shared with {baseline}", unpaired),
        (f"Identical to {baseline} in every seed", identical),
        (f"The difference to {baseline} is the same in every seed and has no spread to test with", constant),
    )
    return [f"{note}: {names}" for note, names in notes if names]


def _failure_notes(comparison: ArmComparison) -> list[str]:
    """Name the trainings that failed: means, intervals and tests are of the others."""
    mixed = [f"{arm.name} ({failure_text(arm.failed)})" for arm in comparison.arms if arm.mixed]
    whole = [f"{arm.name} ({failure_text(arm.failed)})" for arm in comparison.arms if arm.failed and not arm.mixed]
    left_out = "Trainings that failed, and are in no mean, no interval and no t test"
    none = "Arms of which no training learned"
    return [f"{note}: {'; '.join(names)}" for note, names in ((left_out, mixed), (none, whole)) if names]


def _origin_notes(findings: Findings) -> list[str]:
    """Name the commits and machines of the runs where there are several: one seed is another draw on each."""
    notes = []
    runs = findings.runs if findings.single_runs is None else findings.single_runs
    for column, several in (("commit", "commits"), ("machine", "machines"), ("kernels", "generations of kernels")):
        known = runs[column].astype(object).replace("", "unknown").fillna("unknown") if column in runs else []
        counts = pd.Series(known, dtype=str).value_counts()
        if len(counts) > 1:
            names = [f"{name[:7] if column == 'commit' else name} ({count})" for name, count in counts.items()]
            notes.append(
                f"Runs of several {several}: {', '.join(names)}; runs.csv says which. Results can differ by rounding."
            )
    return notes


def _split_notes(findings: Findings) -> list[str]:
    """Say that splits are compared, and how their overlap is corrected for."""
    if findings.single_runs is None:
        return []
    seeds = findings.single_runs["seed"].nunique()
    averaged = f"the mean over {seeds} seeds" if seeds > 1 else "one seed"
    notes = [
        f"Each value is of one split of the images (split_seed), {averaged}; what tables and figures call a seed is a"
        " split. Splits share training images: intervals and t tests are corrected for it (Nadeau and Bengio 2003,"
        f" {findings.correction:.3g} test images per training image); permutation tests and shares are not."
    ]
    digests = findings.protocol.get("split digest", "").split("; ")
    if digests[0] and len(digests) < findings.single_runs[SPLIT_AXIS].nunique():
        notes.append("Some split seeds gave the same split, so that these are copies: the publisher fixes it.")
    return notes


def _look_notes(findings: Findings) -> list[str]:
    """Say where seeds were added to those of the file: tests do not know how often one has looked before."""
    later = sorted({int(seed) for seed in findings.runs["seed"]}.difference(findings.planned_seeds))
    if not later or not findings.planned_seeds:
        return []
    seeds = ", ".join(map(str, later))
    return [
        f"Seeds beyond those of the experiment file: {seeds}. Whoever adds seeds after a look at the results, and tests"
        " again, finds differences that are not there more often than p says."
    ]


def _spread_notes(comparison: ArmComparison) -> list[str]:
    """Arms whose seeds lie much further apart than those of most arms, as where some trainings collapse."""
    arms = [arm for arm in comparison.arms if arm.estimate.n >= MIN_SEEDS_FOR_SPREAD]
    usual = statistics.median(arm.sd for arm in arms) if len(arms) >= MIN_ARMS_FOR_SPREAD else math.nan
    found = []
    for arm in arms:
        if arm.sd > WIDE_SPREAD * usual > 0 and not arm.mixed:
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
    lucky = []
    for arm in comparison.arms:
        mean = arm.left_out.mean() if arm.left_out is not None else math.nan
        if abs(mean - arm.results.mean()) > GOOD:
            lucky.append(f"{arm.name} ({mean:.2f} instead of {arm.results.mean():.2f})")
    lost = []
    for arm in comparison.arms:
        nowhere = arm.left_out.index[arm.left_out.isna()] if arm.left_out is not None else ()
        lost += [f"{arm.name} (seed {', '.join(map(str, nowhere))})"] if len(nowhere) else []
    notes = (
        ("Diverged at the setting that the other seeds choose, and in no mean with the seed left out", ", ".join(lost)),
        (
            "The choice rests on the seeds it is judged on; with the seed left out, the mean is another",
            ", ".join(lucky),
        ),
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
