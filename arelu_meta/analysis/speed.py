"""Speed of adaptation: the area under a curve of scores, and how long it takes to a stated score."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from arelu_meta.analysis.findings import Findings

LEVELS = (50, 60, 70, 80, 90, 95, 99)  # per cent that runs say when they reached
AREA = "_area"
TIME = re.compile(r"(steps|epochs)_to_\d+")

Curve = Sequence[tuple[float, float]]
"""Step and score, in order of the steps."""


def curve_area(curve: Curve) -> float:
    """The area under a curve by the trapezoidal rule, divided by its width: the mean height on the way.

    Args:
        curve: Step and score, at least one; of a single one it is the score.

    Returns:
        A score: of two arms that end alike, the one that rises earlier has more.

    Example:
        >>> curve_area([(0, 0.2), (1, 0.6), (2, 0.8)])  # (0.4 + 0.7) / 2
        0.55
    """
    (start, first), (end, _) = curve[0], curve[-1]
    if end == start:
        return first
    pieces = ((right - left) * (low + high) / 2 for (left, low), (right, high) in itertools.pairwise(curve))
    return sum(pieces) / (end - start)


def first_reaching(curve: Curve, level: float) -> float | None:
    """The step at which a curve first reaches a level, between two steps on the straight line that joins them.

    Whole steps would be the same for many seeds, and a difference without spread cannot be tested.

    Args:
        curve: Step and score, at least one.
        level: The score to reach.

    Returns:
        The step, the first one where the curve starts at the level or above; None where it is never reached.

    Example:
        >>> first_reaching([(0, 0.25), (1, 0.5), (2, 1.0)], 0.75), first_reaching([(0, 0.25), (1, 0.5)], 0.75)
        (1.5, None)
    """
    before: tuple[float, float] | None = None
    for step, score in curve:
        if score >= level:
            if before is None:
                return float(step)
            return before[0] + (step - before[0]) * (level - before[1]) / (score - before[1])
        before = step, score
    return None


def speed_metrics(metric: str, curve: Curve, unit: str) -> dict[str, float]:
    """What a run logs of the speed of one curve; a level that it does not reach is left out.

    Args:
        metric: Of the scores, which are shares from 0 to 1: `test/accuracy`.
        curve: Step and score, at least one.
        unit: What the steps are: `steps` or `epochs`.

    Returns:
        Values by name.

    Example:
        >>> speed_metrics("test/accuracy", [(0, 0.2), (1, 0.6)], "steps")
        {'test/accuracy_area': 0.4, 'test/steps_to_50': 0.75, 'test/steps_to_60': 1.0}
    """
    values = {f"{metric}{AREA}": curve_area(curve)}
    for level in LEVELS:
        reached = first_reaching(curve, level / 100)
        if reached is not None:
            values[f"{metric.rpartition('/')[0]}/{unit}_to_{level}"] = reached
    return values


def speed_names(metric: str, unit: str) -> set[str]:
    """Every name that `speed_metrics` may give."""
    return {f"{metric}{AREA}", *(f"{metric.rpartition('/')[0]}/{unit}_to_{level}" for level in LEVELS)}


def time_unit(metric: str) -> str:
    """What a metric that counts the way to a level counts: `steps` or `epochs`, the fewer the better; else empty.

    >>> time_unit("test/steps_to_80"), time_unit("test/accuracy_area")
    ('steps', '')
    """
    found = TIME.fullmatch(metric.rpartition("/")[2])
    return found[1] if found else ""


def less_is_better(metric: str) -> bool:
    """Whether a metric is a loss, an error, or the way to a level.

    >>> less_is_better("test/mse_step_1"), less_is_better("train/loss"), less_is_better("test/accuracy")
    (True, True, False)
    """
    name = metric.rpartition("/")[2]
    return any(word in name for word in ("loss", "error", "mse")) or bool(time_unit(name))


def is_speed(metric: str) -> bool:
    """Whether a metric measures the speed of adaptation."""
    return metric.endswith(AREA) or bool(time_unit(metric))


def measured_runs(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The runs that measured a speed: a level that such a run has not is one that it never reached.

    Runs that measured it have an area. Those of earlier versions have none, and nothing is known of their speed; those
    that diverged have nothing at all, and never reached anything.
    """
    split = f"{metric.rpartition('/')[0]}/"
    areas = [name for name in runs if str(name).startswith(split) and str(name).endswith(AREA)]
    if not areas:
        return runs if metric in runs else runs[:0]
    results = [name for name in runs if "/" in str(name)]
    kept = runs[runs[areas[0]].notna() | runs[results].isna().all(axis=1)]
    return kept if metric in kept else kept.assign(**{metric: math.nan})


def speed_findings(findings: Findings, metric: str) -> Findings:
    """The same runs, judged by a speed: trainings that failed are those that fail by the metric they are judged by."""
    unit = time_unit(metric)
    return replace(
        findings,
        runs=measured_runs(findings.runs, metric),
        metric=metric,
        failure_metric=findings.failure_metric or findings.metric,
        higher_is_better=not unit,
        margin=None if unit else findings.margin,
        other_metrics={},
        published=None,
        episodes={},
    )
