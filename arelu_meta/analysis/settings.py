"""Settings of a comparison: values of the axes beside the arm, and the choice of an arm's best by validation."""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.speed import less_is_better
from arelu_meta.errors import InputError, unknown

AxisSetting = tuple[tuple[str, Any], ...]
"""Axes with their values, in the order of the axes."""
SourceKey = tuple[str, str, str]
"""Metric, protocol and source of a published value."""


def checked_runs(findings: Findings) -> pd.DataFrame:
    """The runs with arms as text, or an error that names what the analysis cannot do without."""
    runs = findings.runs.copy()
    if runs.empty:
        return runs
    for column in (*findings.axes, "seed", findings.metric):
        if column not in runs:
            raise unknown("column", column, map(str, runs.columns))
    if findings.chance is not None and not findings.higher_is_better and findings.failure_metric is None:
        raise InputError(
            f"chance = {findings.chance:g} is what guessing gives; of {findings.metric} less is better, so leave it out"
        )
    if findings.arm not in findings.axes:
        raise unknown("axis", findings.arm, findings.axes)
    runs[findings.arm] = [value_text(value) for value in runs[findings.arm]]
    runs[findings.metric] = pd.to_numeric(runs[findings.metric], errors="coerce").astype(float)
    if "run_id" not in runs:
        runs["run_id"] = ""
    doubled = runs[runs.duplicated([*findings.axes, "seed"])]
    if len(doubled):
        row = doubled.iloc[0]
        cell = ", ".join(f"{axis} = {value_text(row[axis])}" for axis in (*findings.axes, "seed"))
        raise InputError(f"two runs of one cell ({cell}); keep one of them")
    return runs


def value_text(value: Any) -> str:
    """Write the value of an axis.

    >>> value_text(0.00010000000000000001), value_text(5), value_text(math.nan)
    ('0.0001', '5', 'none')
    """
    if isinstance(value, float):
        return f"{value:g}" if not math.isnan(value) else "none"
    return str(value)


def same_value(one: Any, other: Any) -> bool:
    """Whether two values of an axis are the same, be they written as numbers or as text.

    >>> same_value(0.0001, "1e-4"), same_value("sgd", "adam"), same_value(True, "true")
    (True, False, True)
    """
    if isinstance(one, bool | np.bool_) or isinstance(other, bool | np.bool_):
        return str(one).lower() == str(other).lower()
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-9)
    except (TypeError, ValueError):
        return value_text(one) == value_text(other)


def setting_label(setting: AxisSetting) -> str:
    """Write a setting as `lr = 0.01, shots = 5`; empty for none.

    >>> setting_label((("shots", 5), ("lr", 0.0001)))
    'shots = 5, lr = 0.0001'
    """
    return ", ".join(f"{axis} = {value_text(value)}" for axis, value in setting)


def rows_by_setting(runs: pd.DataFrame, axes: tuple[str, ...]) -> Iterator[tuple[AxisSetting, pd.DataFrame]]:
    """The rows of each combination of the axes' values, in order of first appearance."""
    if not axes:
        yield (), runs
        return
    for values, rows in runs.groupby(list(axes), sort=False, dropna=False):
        yield tuple(zip(axes, values, strict=True)), rows


def published_values(table: pd.DataFrame | None, values: Mapping[str, Any]) -> dict[SourceKey, float]:
    """What each source published for these axis values; an axis that is left out or left empty fits any value."""
    found: dict[SourceKey, float] = {}
    for _, row in table.iterrows() if table is not None else ():
        given = {axis: row[axis] for axis in values if axis in row and row[axis] != "" and not pd.isna(row[axis])}
        if all(same_value(written, values[axis]) for axis, written in given.items()):
            metric, protocol, source = (
                "" if pd.isna(row.get(key)) else str(row[key]) for key in ("metric", "protocol", "source")
            )
            found.setdefault((metric, protocol, source), float(row["value"]))
    return found


def tuned_axes(findings: Findings) -> tuple[str, ...]:
    """Axes whose value an arm may choose by the validation metric."""
    others = [axis for axis in findings.axes if axis != findings.arm]
    if findings.tuned is not None:
        return tuple(axis for axis in others if axis in findings.tuned)
    return tuple(axis for axis in others if axis.split(".")[-1] == "lr" or axis.endswith("_lr"))


@dataclass(frozen=True, eq=False)
class Choice:
    """The setting an arm chose, with what it chose by."""

    setting: AxisSetting
    rows: pd.DataFrame
    validation: float
    """Mean of the validation metric over seeds there."""
    candidates: int
    at_edge: tuple[str, ...]
    """Axes whose chosen number is the smallest or largest tried: a wider grid might do better."""
    uneven: bool = False
    """Whether the settings were not all run with the same seeds."""


def choose_setting(findings: Findings, rows: pd.DataFrame, tuned: tuple[str, ...]) -> Choice:
    """Choose among the settings of one arm by the mean of the validation metric over the seeds that they share.

    A setting in which a seed diverged is chosen only when no other is left; an arm that diverged in all of them has
    no setting, and no result. Test results are not looked at.
    """
    metric = str(findings.validation_metric)
    candidates = []  # setting, its rows, and the validation metric by seed, where it is a number
    for setting, own in rows_by_setting(rows, tuned):
        scores = pd.to_numeric(own.set_index("seed")[metric], errors="coerce").astype(float)
        candidates.append((setting, own, scores[np.isfinite(scores)]))
    converged = [one for one in candidates if len(one[2]) == len(one[1])]
    usable = converged or [one for one in candidates if len(one[2])]
    if not usable:
        diverged = rows.drop_duplicates("seed").assign(**{findings.metric: math.nan})
        return Choice(tuple((axis, math.nan) for axis in tuned), diverged, math.nan, len(candidates), ())
    shared = functools.reduce(pd.Index.intersection, (scores.index for _, _, scores in usable))
    means = [float((one[one.index.intersection(shared)] if len(shared) else one).mean()) for _, _, one in usable]
    # Whatever is tested in the end: a setting may be chosen by accuracy and tested by loss.
    best = (np.argmin if less_is_better(metric) else np.argmax)(means)
    setting, chosen, _ = usable[best]
    edges = []
    for axis, value in setting:
        tried = pd.to_numeric(rows[axis], errors="coerce")
        if tried.notna().all() and tried.nunique() > 1 and float(value) in (float(tried.min()), float(tried.max())):
            edges.append(axis)
    uneven = len({frozenset(own["seed"]) for _, own, _ in candidates}) > 1
    return Choice(setting, chosen, means[best], len(candidates), tuple(edges), uneven)


def decades_from(setting: AxisSetting, other: AxisSetting, axis: str) -> float:
    """By how many powers of ten one setting's value lies above the other's; NaN where they are not positive numbers.

    >>> decades_from((("lr", 0.01),), (("lr", 0.1),), "lr")
    -1.0
    """
    try:
        one, two = float(dict(setting)[axis]), float(dict(other)[axis])
    except (KeyError, TypeError, ValueError):
        return math.nan
    return math.log10(one / two) if one > 0 and two > 0 else math.nan


def left_out_results(findings: Findings, rows: pd.DataFrame, tuned: tuple[str, ...]) -> pd.Series:
    """Results of one arm, each seed at the setting that the other seeds choose.

    The plain choice knows the seeds it is judged on; this one does not. Where the best setting is good for some seeds
    and bad for others, the difference is large. NaN where the seed diverged there; empty for a single seed.
    """
    found: dict[Any, float] = {}
    for seed in sorted(rows["seed"].unique()) if rows["seed"].nunique() > 1 else ():
        chosen = dict(choose_setting(findings, rows[rows["seed"] != seed], tuned).setting)
        own = rows[rows["seed"] == seed]
        for axis, value in chosen.items():
            own = own[[same_value(one, value) for one in own[axis]]]
        if len(own):
            found[seed] = float(own[findings.metric].iloc[0])
    results = pd.Series(found, dtype=float)
    return results.where(np.isfinite(results))
