"""Which way a difference points: better or worse, whatever the metric calls good."""

from collections.abc import Iterable

from arelu_meta.analysis.arms import Arm
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.paired import Paired


def better(findings: Findings, difference: Paired) -> bool:
    """Whether a difference is to the good."""
    return (difference.estimate.mean > 0) == findings.higher_is_better


def better_and_worse(findings: Findings, arms: Iterable[Arm]) -> tuple[int, int]:
    """How many arms are detectably better than the baseline, and how many worse."""
    apart = [arm.difference for arm in arms if arm.apart and arm.difference is not None]
    good = sum(better(findings, difference) for difference in apart)
    return good, len(apart) - good
