"""Learning rates matched on validation: each arm at the setting that is best for it, test results unseen."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from arelu_meta.reporting.findings import Findings
from arelu_meta.reporting.settings import Setting, settings


@dataclass(frozen=True, eq=False)
class Choice:
    """The setting an arm chose, with what it chose by."""

    setting: Setting
    rows: pd.DataFrame
    validation: float
    """Mean of the validation metric over seeds there."""
    candidates: int
    at_edge: tuple[str, ...]
    """Axes whose chosen number is the smallest or largest tried: a wider grid might do better."""


def _lower_is_better(findings: Findings) -> bool:
    name = (findings.validation_metric or "").rsplit("/", 1)[-1]
    return "loss" in name or "error" in name or not findings.higher_is_better


def choose(findings: Findings, rows: pd.DataFrame, tuned: tuple[str, ...]) -> Choice:
    """Choose among the settings of one arm by the mean of the validation metric over seeds.

    A setting in which any seed of the arm is missing or diverged is chosen only when no other is left; an arm that
    diverged in all of them has no setting, and no result.
    """
    seeds = rows["seed"].nunique()
    candidates = []
    for setting, own in settings(rows, tuned):
        values = pd.to_numeric(own[findings.validation_metric], errors="coerce").to_numpy(dtype=float)
        finite = values[np.isfinite(values)]
        score = float(finite.mean()) if len(finite) else math.nan
        candidates.append((len(finite) == seeds, -score if _lower_is_better(findings) else score, setting, own, score))
    usable = [candidate for candidate in candidates if not math.isnan(candidate[1])]
    if not usable:
        lost = rows.drop_duplicates("seed").assign(**{findings.metric: math.nan})
        return Choice(tuple((axis, math.nan) for axis in tuned), lost, math.nan, len(candidates), ())
    _, _, setting, own, score = max(usable, key=lambda candidate: candidate[:2])
    return Choice(setting, own, score, len(candidates), _edges(rows, setting))


def _edges(rows: pd.DataFrame, setting: Setting) -> tuple[str, ...]:
    edges = []
    for axis, value in setting:
        tried = pd.to_numeric(rows[axis], errors="coerce")
        if tried.notna().all() and tried.nunique() > 1 and float(value) in (float(tried.min()), float(tried.max())):
            edges.append(axis)
    return tuple(edges)


def decades_from(setting: Setting, other: Setting, axis: str) -> float:
    """By how many powers of ten one setting's value lies above the other's; NaN where they are not positive numbers.

    >>> decades_from((("lr", 0.01),), (("lr", 0.1),), "lr")
    -1.0
    """
    try:
        one, two = float(dict(setting)[axis]), float(dict(other)[axis])
    except (KeyError, TypeError, ValueError):
        return math.nan
    return math.log10(one / two) if one > 0 and two > 0 else math.nan
