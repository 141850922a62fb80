"""Statistics over the runs of a comparison and what follows from them; knows nothing of output."""

from arelu_meta.analysis.arms import Analysis, Arm, ArmComparison, analyse
from arelu_meta.analysis.estimates import (
    Estimate,
    PairedDifference,
    detectable_difference,
    holm,
    mean_interval,
    paired_difference,
    proportion_interval,
)
from arelu_meta.analysis.findings import Findings

__all__ = [
    "Analysis",
    "Arm",
    "ArmComparison",
    "Estimate",
    "Findings",
    "PairedDifference",
    "analyse",
    "detectable_difference",
    "holm",
    "mean_interval",
    "paired_difference",
    "proportion_interval",
]
