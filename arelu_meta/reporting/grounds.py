"""What a verdict rests on: the test and its circumstances, what else was found, and what was not tried."""

import math

from arelu_meta.analysis.arms import ALPHA, Arm, Comparison
from arelu_meta.analysis.controls import explained_arm
from arelu_meta.analysis.direction import better_and_worse
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import label
from arelu_meta.reporting.numbers import Numbers, stated_p
from arelu_meta.reporting.words import are, counted, listed


def circumstances(findings: Findings, comparison: Comparison) -> str:
    """Say under which settings, for how many seeds, and by which protocol and budget."""
    parts = [comparison.label, comparison.seeds]
    if "protocol" in findings.protocol:
        parts.append(f"protocol {findings.protocol['protocol']}")
    if findings.budget < 1:
        parts.append(f"only {100 * findings.budget:g} % of the full training")
    return ", ".join(part for part in parts if part)


def grounds(findings: Findings, comparison: Comparison, arm: Arm | None, numbers: Numbers) -> str:
    """Put them into words for the arm whose difference is stated; None where no arm differs."""
    explained = arm is not None and arm.name == explained_arm(findings, comparison)
    parts = [_test(findings, comparison, arm, "" if explained or arm is None else f" for {arm.name}")]
    if arm is not None and explained:
        # Without controls the second sentence says what could have been detected.
        parts += [_power(arm, numbers) if findings.controls else "", _others(findings, comparison, arm)]
    return " ".join(filter(None, [*parts, _untried(findings, comparison)]))


def _test(findings: Findings, comparison: Comparison, arm: Arm | None, of: str) -> str:
    found = f"no p below {ALPHA:g}" if arm is None else stated_p(arm.p_holm)
    over = f", Holm-corrected over {len(comparison.tested)} arms" if len(comparison.tested) > 1 else ""
    return f"The paired t test gives {found}{of}{over} ({circumstances(findings, comparison)})."


def _power(arm: Arm, numbers: Numbers) -> str:
    if arm.apart or not math.isfinite(arm.detectable):
        return ""
    if numbers.unit == "%" and arm.detectable > 100:
        missed = "Not even a true difference of 100 points would have been found with 80 % power"
        return f"{missed}: the seeds are too few or lie too far apart."
    size = f"{numbers.value(arm.detectable)} {numbers.points}".rstrip()
    return f"A true difference of {size} would have been found with 80 % power."


def _others(findings: Findings, comparison: Comparison, arm: Arm) -> str:
    others = [other for other in comparison.tested if other is not arm]
    if not others:
        return ""
    good, bad = better_and_worse(findings, others)
    counts = f"{good} {are(good)} detectably better than {findings.baseline} and {bad} worse"
    return f"Of {counted(len(others), 'arm')} beside {arm.name}, {counts}."


def _untried(findings: Findings, comparison: Comparison) -> str:
    """Name those of the two arms a verdict is about that had no choice, or chose the smallest or largest on offer."""
    names = (findings.baseline, explained_arm(findings, comparison))
    arms = [arm for arm in map(comparison.arm, names) if arm is not None]
    single = [arm.name for arm in arms if arm.choice and arm.choice.candidates == 1]
    edge = [f"{arm.name} ({label(arm.choice.setting)})" for arm in arms if arm.choice and arm.choice.at_edge]
    parts = [f"{listed(single)} had no other setting to choose"] if single else []
    if edge:
        where = "at the edge of what was tried: a wider grid may decide otherwise"
        parts.append(f"{listed(edge)} {are(len(edge))} best {where}")
    return f"But {', and '.join(parts)}." if parts else ""
