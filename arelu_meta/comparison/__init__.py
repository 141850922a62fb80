"""Comparisons: a grid of runs over arms, settings and seeds, run, resumed and collected.

The names below are loaded when they are first used: reading an experiment file needs neither torch nor MLflow.
"""

import importlib
from typing import Any

_HOMES = {
    "Cell": "cells",
    "ComparisonResult": "runner",
    "Experiment": "experiment",
    "Pool": "pool",
    "RayCluster": "ray",
    "curves": "collect",
    "expand": "cells",
    "read_experiment": "experiment",
    "results": "collect",
    "run_comparison": "runner",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
