"""Statistics over the runs of a comparison and what follows from them; knows nothing of output."""

from arelu_meta.analysis.arms import Analysis, Arm, ArmComparison, analyse
from arelu_meta.analysis.decisions import Outcome, PairedTest, equivalence_p
from arelu_meta.analysis.estimates import (
    Estimate,
    PairedDifference,
    holm,
    mean_interval,
    paired_difference,
    proportion_interval,
)
from arelu_meta.analysis.failures import exact_proportion_interval
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.power import detectable_difference, seeds_needed
from arelu_meta.analysis.robust import probability_of_improvement

__all__ = [
    "Analysis",
    "Arm",
    "ArmComparison",
    "Estimate",
    "Findings",
    "Outcome",
    "PairedDifference",
    "PairedTest",
    "analyse",
    "detectable_difference",
    "equivalence_p",
    "exact_proportion_interval",
    "holm",
    "mean_interval",
    "paired_difference",
    "probability_of_improvement",
    "proportion_interval",
    "seeds_needed",
]
