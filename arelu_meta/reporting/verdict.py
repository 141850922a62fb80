"""The verdict: two sentences that follow from the numbers, and from nothing else."""

import math
from dataclasses import dataclass

from arelu_meta.analysis.arms import ALPHA, Arm, Comparison
from arelu_meta.analysis.controls import Control, against_controls, explained_arm
from arelu_meta.analysis.direction import better, better_and_worse
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.paired import Paired
from arelu_meta.reporting.grounds import circumstances, grounds
from arelu_meta.reporting.numbers import Numbers
from arelu_meta.reporting.words import are, counted, listed


@dataclass(frozen=True)
class Verdict:
    """What a comparison comes to."""

    sentences: str
    """Whether arms differ from the baseline, and what the controls explain of it."""
    grounds: str = ""
    """What that rests on."""
    about: str = ""
    """The setting, where a report has several."""


def verdict(findings: Findings, comparison: Comparison, numbers: Numbers, about: str = "") -> Verdict:
    """Judge a comparison."""
    baseline = comparison.arm(findings.baseline)
    around = f"{findings.metric}: {circumstances(findings, comparison)}."
    if baseline is None or math.isnan(baseline.estimate.mean):
        reason = f"no run of the baseline {findings.baseline} has a result"
        return Verdict(f"Nothing can be compared: {reason}.", around, about)
    if all(arm is baseline or not arm.estimate.n for arm in comparison.arms):
        return Verdict(f"Nothing can be compared: {findings.baseline} is the only arm with a result.", around, about)
    if not comparison.tested:
        return Verdict(_untested(findings, comparison, numbers), around, about)
    subject = comparison.arm(explained_arm(findings, comparison))
    tested = subject if subject in comparison.tested else _most_telling(findings, comparison)
    if subject is not None and tested is subject:
        first = _about(findings, subject, numbers)
    else:
        first = _counts(findings, comparison, tested, numbers)
    controls = against_controls(findings, comparison)
    second = _explanation(findings, subject, controls) if subject and controls else _limits(comparison, numbers)
    return Verdict(f"{first} {second}", grounds(findings, comparison, tested, numbers), about)


def _untested(findings: Findings, comparison: Comparison, numbers: Numbers) -> str:
    best = comparison.arms[0]
    mean = f"The best mean is that of {best.name}, {numbers.with_unit(best.estimate.mean)}."
    if not any(arm.difference is not None and arm.difference.n for arm in comparison.arms):
        return f"No arm shares a seed with {findings.baseline}, so that nothing can be compared in pairs. {mean}"
    if any(arm.difference is not None and arm.difference.constant for arm in comparison.arms):
        return f"Differences to {findings.baseline} do not vary over seeds and cannot be tested. {mean}"
    return f"A single seed cannot tell a difference to {findings.baseline} from chance. {mean}"


def _about(findings: Findings, arm: Arm, numbers: Numbers) -> str:
    if not arm.apart:
        what = f"No difference between {arm.name} and {findings.baseline} is detectable"
    else:
        how = "better" if arm.difference is not None and better(findings, arm.difference) else "worse"
        what = f"{arm.name} is detectably {how} than {findings.baseline}"
    return f"{what} on {findings.metric}: {_size(arm.difference, numbers)}."


def _counts(findings: Findings, comparison: Comparison, named: Arm | None, numbers: Numbers) -> str:
    arms = counted(len(comparison.tested), "arm")
    if named is None:
        return f"No difference is detectable: of {arms} none differs from {findings.baseline} on {findings.metric}."
    good, bad = better_and_worse(findings, comparison.tested)
    counts = f"{good} {are(good)} detectably better than {findings.baseline} on {findings.metric} and {bad} worse"
    which = f"the {'best' if good else 'worst'} is {named.name}"
    return f"Of {arms}, {counts}; {which}: {_size(named.difference, numbers)}."


def _most_telling(findings: Findings, comparison: Comparison) -> Arm | None:
    """The best of the arms that differ from the baseline, or the worst where none is better."""
    apart = [arm for arm in comparison.tested if arm.apart]
    if not apart:
        return None
    return apart[0] if better_and_worse(findings, apart)[0] else apart[-1]


def _size(difference: Paired | None, numbers: Numbers) -> str:
    assert difference is not None  # noqa: S101 - only tested arms come here
    found = difference.estimate
    interval = f"95 % interval {numbers.signed(found.low)} to {numbers.signed(found.high)}"
    return f"{numbers.difference(found.mean)}, {interval}"


def _explanation(findings: Findings, subject: Arm, controls: list[Control]) -> str:
    """Say which controls differ from the arm; where it has an advantage, that tells which of its parts it needs."""
    apart = [control for control in controls if control.p_holm < ALPHA]
    ahead = [control for control in apart if better(findings, control.difference)]
    behind = [control for control in apart if control not in ahead]
    alike = [control for control in controls if control not in apart]
    if subject.apart and subject.difference is not None and better(findings, subject.difference):
        groups = ((ahead, "it is worse"), (behind, "it is better"), (alike, "no difference is detectable"))
        text = "; ".join(f"{_without(group)} {words}" for group, words in groups if group)
        return f"{text[0].upper()}{text[1:]}."
    if not apart:
        return f"None of its controls differs detectably from {subject.name}."
    groups = ((behind, "detectably better"), (ahead, "detectably worse"), (alike, "not detectably different"))
    clauses = [
        f"{listed([control.arm for control in group])} {are(len(group))} {words}" for group, words in groups if group
    ]
    return f"Of its controls, {'; '.join(clauses)}."


def _without(controls: list[Control]) -> str:
    parts = [f"without {control.takes_away}" for control in controls]
    return ", or ".join(parts) + "," * (len(parts) > 1)


def _limits(comparison: Comparison, numbers: Numbers) -> str:
    limits = [numbers.value(arm.detectable) for arm in comparison.arms if math.isfinite(arm.detectable)]
    if not limits:
        return "What the design could have detected cannot be said: the differences do not vary."
    low, high = min(limits, key=float), max(limits, key=float)
    size = f"{low if low == high else f'{low} to {high} (by arm)'} {numbers.points}".strip()
    return f"True differences from {size} on would have been detected with 80 % power; smaller ones may be there."
