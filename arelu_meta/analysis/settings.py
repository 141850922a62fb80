"""Settings of a comparison: values of the axes beside the arm, and which of them an arm may choose for itself."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from arelu_meta.analysis.findings import Findings
from arelu_meta.errors import InputError, unknown

Setting = tuple[tuple[str, Any], ...]
"""Axes with their values, in the order of the axes."""


def checked_runs(findings: Findings) -> pd.DataFrame:
    """The runs with arms as text, or an error that names what the analysis cannot do without."""
    runs = findings.runs.copy()
    if runs.empty:
        return runs
    for column in (*findings.axes, "seed", findings.metric):
        if column not in runs:
            raise unknown("column", column, map(str, runs.columns))
    if findings.arm not in findings.axes:
        raise unknown("axis", findings.arm, findings.axes)
    runs[findings.arm] = [text(value) for value in runs[findings.arm]]
    runs[findings.metric] = pd.to_numeric(runs[findings.metric], errors="coerce").astype(float)
    if "run_id" not in runs:
        runs["run_id"] = ""
    doubled = runs[runs.duplicated([*findings.axes, "seed"])]
    if len(doubled):
        row = doubled.iloc[0]
        cell = ", ".join(f"{axis} = {text(row[axis])}" for axis in (*findings.axes, "seed"))
        raise InputError(f"two runs of one cell ({cell}); keep one of them")
    return runs


def text(value: Any) -> str:
    """Write the value of an axis: 0.0001, not 1e-04 or 0.00010000000000000001."""
    if isinstance(value, float):
        return f"{value:g}" if not math.isnan(value) else "none"
    return str(value)


def tuned_axes(findings: Findings) -> tuple[str, ...]:
    """Axes whose value an arm may choose by the validation metric."""
    others = [axis for axis in findings.axes if axis != findings.arm]
    if findings.tuned is not None:
        return tuple(axis for axis in others if axis in findings.tuned)
    return tuple(axis for axis in others if axis.split(".")[-1] == "lr" or axis.endswith("_lr"))


def label(setting: Setting) -> str:
    """Write a setting as `lr = 0.01, shots = 5`; empty for none.

    >>> label((("shots", 5), ("lr", 0.0001)))
    'shots = 5, lr = 0.0001'
    """
    return ", ".join(f"{axis} = {text(value)}" for axis, value in setting)


def settings(runs: pd.DataFrame, axes: tuple[str, ...]) -> Iterator[tuple[Setting, pd.DataFrame]]:
    """The rows of each combination of the axes' values, in order of first appearance."""
    if not axes:
        yield (), runs
        return
    for values, rows in runs.groupby(list(axes), sort=False, dropna=False):
        yield tuple(zip(axes, values, strict=True)), rows


def same(one: Any, other: Any) -> bool:
    """Whether two values of an axis are the same, be they written as numbers or as text.

    >>> same(0.0001, "1e-4"), same("sgd", "adam"), same(True, "true")
    (True, False, True)
    """
    if isinstance(one, bool | np.bool_) or isinstance(other, bool | np.bool_):
        return str(one).lower() == str(other).lower()
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-9)
    except (TypeError, ValueError):
        return text(one) == text(other)
