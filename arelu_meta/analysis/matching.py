"""Learning rates matched on validation: each arm at the setting that is best for it, test results unseen."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import Setting, settings


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
    uneven: bool = False
    """Whether the settings were not all run with the same seeds."""


@dataclass(frozen=True, eq=False)
class _Tried:
    setting: Setting
    rows: pd.DataFrame
    scores: pd.Series
    """The validation metric by seed."""

    @property
    def diverged(self) -> bool:
        return not np.isfinite(self.scores).all()

    def score(self, seeds: pd.Index) -> float:
        """Mean over these seeds, or over its own where there are none."""
        finite = self.scores[np.isfinite(self.scores)]
        return float(finite[finite.index.intersection(seeds)].mean() if len(seeds) else finite.mean())


def choose(findings: Findings, rows: pd.DataFrame, tuned: tuple[str, ...]) -> Choice:
    """Choose among the settings of one arm by the mean of the validation metric over the seeds that they share.

    A setting in which a seed diverged is chosen only when no other is left; an arm that diverged in all of them has
    no setting, and no result.
    """
    metric = str(findings.validation_metric)
    every = [_Tried(setting, own, _scores(own, metric)) for setting, own in settings(rows, tuned)]
    whole = [one for one in every if not one.diverged]
    usable = whole or [one for one in every if np.isfinite(one.scores).any()]
    if not usable:
        lost = rows.drop_duplicates("seed").assign(**{findings.metric: math.nan})
        return Choice(tuple((axis, math.nan) for axis in tuned), lost, math.nan, len(every), ())
    seeds = [one.scores.index[np.isfinite(one.scores)] for one in usable]
    shared = functools.reduce(pd.Index.intersection, seeds)
    sign = -1 if _lower_is_better(metric) else 1
    best = max(usable, key=lambda one: sign * one.score(shared))
    uneven = len({frozenset(one.scores.index) for one in every}) > 1
    return Choice(best.setting, best.rows, best.score(shared), len(every), _edges(rows, best.setting), uneven)


def _scores(rows: pd.DataFrame, metric: str) -> pd.Series:
    return pd.to_numeric(rows.set_index("seed")[metric], errors="coerce").astype(float)


def _lower_is_better(metric: str) -> bool:
    """Whatever is judged in the end: a network may be chosen by its accuracy and judged by its loss."""
    name = metric.rsplit("/", 1)[-1]
    return "loss" in name or "error" in name


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
