"""Statistics over the runs of a comparison and what follows from them; knows nothing of output.

The names below are loaded when they are first used: `estimates` is imported by every run, pandas only by comparisons.
"""

import importlib
from typing import Any

_HOMES = {
    "Analysis": "arms",
    "Arm": "arms",
    "ArmComparison": "arms",
    "Estimate": "estimates",
    "Findings": "findings",
    "PairedDifference": "estimates",
    "analyse": "arms",
    "detectable_difference": "estimates",
    "holm": "estimates",
    "mean_interval": "estimates",
    "paired_difference": "estimates",
    "proportion_interval": "estimates",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
