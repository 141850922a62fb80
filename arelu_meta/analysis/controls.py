"""The explained arm against its controls: is it the shape, the learning or the gain?"""

from collections.abc import Sequence
from dataclasses import dataclass

from arelu_meta.analysis.arms import Arm, ArmComparison, paired_test
from arelu_meta.analysis.decisions import Outcome, PairedTest, family_sizes
from arelu_meta.analysis.estimates import paired_difference
from arelu_meta.analysis.findings import Findings

DEFAULT_EXPLAINED = "arelu"


@dataclass(frozen=True, eq=False)
class Control:
    """The explained arm less one control, seed by seed."""

    arm: str
    lacks: str
    test: PairedTest
    """Corrected over the controls."""

    @property
    def differs(self) -> bool:
        """Whether the explained arm differs detectably from it."""
        return self.test.differs


def explained_arm(findings: Findings, comparison: ArmComparison) -> str | None:
    """The arm that the verdict is about: explained, else primary, else `arelu` or the only one there can be."""
    free = [arm.name for arm in comparison.arms if arm.name != findings.baseline and arm.name not in findings.controls]
    given = findings.explained if findings.explained is not None else findings.primary
    named = given if given is not None else DEFAULT_EXPLAINED
    if named in free:
        return named
    return free[0] if given is None and len(free) == 1 else None


def against_controls(findings: Findings, comparison: ArmComparison) -> list[Control]:
    """Compare the explained arm with each of its controls; empty where nothing can be tested."""
    subject = comparison.arm(explained_arm(findings, comparison))
    named: Sequence[Arm | None] = [comparison.arm(name) for name in findings.controls] if subject else []
    controls = {arm.name: arm for arm in named if arm is not None}
    pairs = {
        name: paired_difference(subject.values, arm.values, overlap=findings.correction)
        for name, arm in controls.items()
        if subject
    }
    families = family_sizes(pairs, None)
    tests = {
        name: paired_test(findings, subject, controls[name], pair, families[name])
        for name, pair in pairs.items()
        if subject
    }
    return [
        Control(name, findings.controls[name], test)
        for name, test in tests.items()
        if test.outcome is not Outcome.UNTESTED
    ]
