"""The arm that is to be explained, beside its controls: is it the shape, the learning or the gain?"""

import math
from dataclasses import dataclass

from arelu_meta.analysis.arms import Comparison
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.holm import holm
from arelu_meta.analysis.paired import Paired, compare

HOME_CASE = "arelu"


@dataclass(frozen=True, eq=False)
class Control:
    """The explained arm less one control, seed by seed."""

    arm: str
    takes_away: str
    difference: Paired
    p_holm: float
    """Corrected over the controls."""


def explained_arm(findings: Findings, comparison: Comparison) -> str | None:
    """The arm that the controls take apart: as the findings say, or `arelu`, or the only one there can be."""
    free = [arm.name for arm in comparison.arms if arm.name != findings.baseline and arm.name not in findings.controls]
    named = findings.explained if findings.explained is not None else HOME_CASE
    if named in free:
        return named
    return free[0] if findings.explained is None and len(free) == 1 else None


def against_controls(findings: Findings, comparison: Comparison) -> list[Control]:
    """Compare the explained arm with each of its controls; empty where nothing can be tested."""
    subject = comparison.arm(explained_arm(findings, comparison))
    if subject is None:
        return []
    pairs = []
    for name, takes_away in findings.controls.items():
        control = comparison.arm(name)
        if control is not None:
            pairs.append((name, takes_away, compare(subject.values, control.values)))
    corrected = holm([pair.p_t for _, _, pair in pairs])
    return [
        Control(name, takes_away, pair, p)
        for (name, takes_away, pair), p in zip(pairs, corrected, strict=True)
        if not math.isnan(p)
    ]
