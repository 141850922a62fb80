"""The verdict: two sentences that follow from the numbers, and from nothing else."""

import math

from arelu_meta.reporting.arms import ALPHA, Arm, Comparison
from arelu_meta.reporting.controls import Control, against_controls, explained_arm
from arelu_meta.reporting.findings import Findings
from arelu_meta.reporting.numbers import Numbers, counted, stated_p
from arelu_meta.reporting.paired import Paired
from arelu_meta.reporting.settings import label


def verdict(findings: Findings, comparison: Comparison, numbers: Numbers) -> str:
    """Say in two sentences whether arms differ from the baseline, and what the controls explain of it."""
    baseline = comparison.arm(findings.baseline)
    scope = f"This is about {findings.metric} ({_circumstances(findings, comparison)})."
    if baseline is None or math.isnan(baseline.estimate.mean):
        return f"Nothing can be compared: no run of the baseline {findings.baseline} has a result. {scope}"
    if all(arm is baseline or not arm.estimate.n for arm in comparison.arms):
        return f"Nothing can be compared: {findings.baseline} is the only arm with a result. {scope}"
    if not comparison.tested:
        return f"{_untested(findings, comparison, numbers)} {scope}"
    subject = comparison.arm(explained_arm(findings, comparison))
    if subject is None or subject not in comparison.tested:
        first = _counts(findings, comparison, numbers)
    else:
        first = _about(findings, comparison, subject, numbers)
    controls = against_controls(findings, comparison)
    if subject is None or not controls:
        return f"{first} {_limits(comparison, numbers)}"
    return f"{first} {_explanation(findings, subject, controls, numbers)}"


def better(findings: Findings, difference: Paired) -> bool:
    """Whether a difference is to the good."""
    return (difference.estimate.mean > 0) == findings.higher_is_better


def _circumstances(findings: Findings, comparison: Comparison) -> str:
    parts = [comparison.label, comparison.seeds]
    if "protocol" in findings.protocol:
        parts.append(f"protocol {findings.protocol['protocol']}")
    if findings.budget < 1:
        parts.append(f"only {100 * findings.budget:g} % of the full training")
    parts.append(_untried(findings, comparison))
    return ", ".join(part for part in parts if part)


def _untried(findings: Findings, comparison: Comparison) -> str:
    """Name those of the two arms a verdict is about that had no choice, or chose the smallest or largest on offer."""
    names = (findings.baseline, explained_arm(findings, comparison))
    arms = [arm for arm in map(comparison.arm, names) if arm is not None]
    single = [arm.name for arm in arms if arm.choice and arm.choice.candidates == 1]
    edge = [f"{arm.name} ({label(arm.choice.setting)})" for arm in arms if arm.choice and arm.choice.at_edge]
    parts = [f"{_listed(single, 'and')} had no other setting to choose"] if single else []
    if edge:
        are = "is" if len(edge) == 1 else "are"
        parts.append(
            f"{_listed(edge, 'and')} {are} best at the edge of what was tried: a wider grid may decide otherwise"
        )
    return "but " + ", and ".join(parts) if parts else ""


def _untested(findings: Findings, comparison: Comparison, numbers: Numbers) -> str:
    best = comparison.arms[0]
    mean = f"the best mean is that of {best.name}, {numbers.with_unit(best.estimate.mean)}"
    if any(arm.difference is not None and arm.difference.constant for arm in comparison.arms):
        return f"Differences to {findings.baseline} do not vary over seeds and cannot be tested; {mean}."
    return f"A single seed cannot tell a difference to {findings.baseline} from chance; {mean}."


def _stated(comparison: Comparison, arm: Arm, numbers: Numbers) -> str:
    """Write a difference to the baseline with everything that is known of it."""
    assert arm.difference is not None  # noqa: S101 - only tested arms come here
    found = arm.difference.estimate
    over = f", Holm-corrected over {len(comparison.tested)} arms" if len(comparison.tested) > 1 else ""
    interval = f"95 % interval {numbers.signed(found.low)} to {numbers.signed(found.high)}"
    return f"{numbers.difference(found.mean)}, {interval}, {stated_p(arm.p_holm)} by the paired t test{over}"


def _about(findings: Findings, comparison: Comparison, arm: Arm, numbers: Numbers) -> str:
    assert arm.difference is not None  # noqa: S101
    if arm.apart:
        how = "better" if better(findings, arm.difference) else "worse"
        finding = f"{arm.name} is detectably {how} than {findings.baseline} on {findings.metric}"
    else:
        finding = f"There is no detectable difference between {arm.name} and {findings.baseline} on {findings.metric}"
    others = [other for other in comparison.tested if other is not arm]
    good, bad = _apart(findings, others)
    beside = counted(len(others), "arm")
    rest = f"; of {beside} beside it, {_are(good)} detectably better and {bad} worse" if others else ""
    return f"{finding} ({_stated(comparison, arm, numbers)}; {_circumstances(findings, comparison)}){rest}."


def _counts(findings: Findings, comparison: Comparison, numbers: Numbers) -> str:
    around, arms = _circumstances(findings, comparison), counted(len(comparison.tested), "arm")
    good, bad = _apart(findings, comparison.tested)
    if not good and not bad:
        level = f"at a corrected level of {ALPHA:g} ({around})"
        whole = f"of {arms} none differs from {findings.baseline} on {findings.metric} {level}"
        return f"There is no detectable difference: {whole}."
    apart = [arm for arm in comparison.tested if arm.apart]
    furthest = apart[0] if good else apart[-1]
    stated = _stated(comparison, furthest, numbers)
    first = f"Of {arms}, {_are(good)} detectably better than {findings.baseline} on {findings.metric} and {bad} worse"
    return f"{first}, {furthest.name} furthest ({stated}; {around})."


def _apart(findings: Findings, arms: tuple[Arm, ...] | list[Arm]) -> tuple[int, int]:
    """How many arms are detectably better than the baseline, and how many worse."""
    apart = [arm.difference for arm in arms if arm.apart and arm.difference is not None]
    good = sum(better(findings, difference) for difference in apart)
    return good, len(apart) - good


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _limits(comparison: Comparison, numbers: Numbers) -> str:
    limits = [numbers.value(arm.detectable) for arm in comparison.arms if math.isfinite(arm.detectable)]
    if not limits:
        return "What the design could have detected cannot be said: the differences do not vary."
    low, high = min(limits, key=float), max(limits, key=float)
    size = f"{low if low == high else f'{low} to {high} (by arm)'} {numbers.points}".strip()
    return f"True differences from {size} on would have been detected with 80 % power; smaller ones may be there."


def _explanation(findings: Findings, subject: Arm, controls: list[Control], numbers: Numbers) -> str:
    """Say from which controls the arm differs, and so which of the parts that they lack it needs."""
    apart = [control for control in controls if control.p_holm < ALPHA]
    ahead = [control for control in apart if better(findings, control.difference)]
    behind = [control for control in apart if control not in ahead]
    alike = [control for control in controls if control not in apart]
    clauses = [
        f"{words} {_listed([_control(control, numbers) for control in group], 'and')}"
        for words, group in (
            ("detectably better than", ahead),
            ("detectably worse than", behind),
            ("not detectably different from", alike),
        )
        if group
    ]
    conclusion = ""
    if subject.apart and subject.difference is not None and better(findings, subject.difference):
        found = ((ahead, "it is worse"), (alike, "no difference is detectable"))
        conclusion = "; ".join(f"{_without(group)} {words}" for group, words in found if group)
    return f"Against its controls, {subject.name} is {', and '.join(clauses)}" + (
        f": {conclusion}." if conclusion else "."
    )


def _control(control: Control, numbers: Numbers) -> str:
    found = f"{numbers.difference(control.difference.estimate.mean)}, {stated_p(control.p_holm)}"
    return f"{control.arm} (which lacks {control.takes_away}: {found})"


def _without(controls: list[Control]) -> str:
    parts = [f"without {control.takes_away}" for control in controls]
    return ", or ".join(parts) + "," * (len(parts) > 1)


def _listed(words: list[str], link: str) -> str:
    """Write `a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {link} {words[-1]}"
