"""Comparisons over several splits of one set: the split is then the unit, and its overlap with the others is corrected.

Test images, classes and episodes are luck of the draw like the seed. An axis `split_seed` draws them anew; but the
training images of two splits are mostly the same, so their results are not independent, and Student's interval is too
narrow. Nadeau and Bengio (2003) take the variance of the mean over n splits for (1 / n + test images / training images)
times that of one split.
"""

from dataclasses import replace

import pandas as pd

from arelu_meta.analysis.failures import COLLAPSED, failed_trainings
from arelu_meta.analysis.findings import Findings
from arelu_meta.errors import InputError

SPLIT_AXIS = "split_seed"


def over_splits(findings: Findings) -> Findings:
    """Average the seeds of each split, so that the splits are what is compared.

    Args:
        findings: Results of runs; they are given back as they are where `split_seed` is no axis, or is the arm.

    Returns:
        Findings with a row for each arm, setting and split, whose number stands as `seed`; `single_runs` has the rows
        before. Of a split only seeds count that all its arms have. A training that failed makes its split one that did.

    Raises:
        InputError: It is not known how much the splits overlap, or the arms share no seed in any of them.

    Example:
        >>> runs = pd.DataFrame({"activation": ["relu"] * 4, "split_seed": [0, 0, 1, 1], "seed": [0, 1, 0, 1],
        ...                      "test/accuracy": [80.0, 82.0, 90.0, 94.0]})
        >>> found = Findings("mine", "", "", runs, ("activation", "split_seed"), "activation", "relu", "test/accuracy",
        ...                  overlap=0.25)
        >>> over_splits(found).runs[["seed", "test/accuracy"]].to_numpy().tolist()
        [[0.0, 81.0], [1.0, 92.0]]
    """
    if SPLIT_AXIS not in findings.axes or findings.arm == SPLIT_AXIS or findings.runs.empty:
        return findings
    if findings.overlap is None:
        raise InputError(
            f"results over several splits (axis {SPLIT_AXIS}) need `overlap`, the test images per training image"
        )
    axes = tuple(axis for axis in findings.axes if axis != SPLIT_AXIS)
    settings = [axis for axis in (*axes, SPLIT_AXIS) if axis != findings.arm]
    runs = findings.runs.copy()
    arms = runs.groupby(settings, dropna=False)[findings.arm].transform("nunique")
    runs = runs[runs.groupby([*settings, "seed"], dropna=False)[findings.arm].transform("nunique") == arms]
    if runs.empty:
        raise InputError(
            f"the arms have no seed in common in any split; run them with the same seeds, `{SPLIT_AXIS}` aside"
        )
    runs = _with_failures(findings, runs, axes)
    averaged = _averaged(runs, [*axes, SPLIT_AXIS])
    curves = findings.curves
    if curves is not None:
        curves = _averaged(curves, [*axes, SPLIT_AXIS, "metric", "step"])
    return replace(
        findings, runs=averaged, axes=axes, curves=curves, episodes={}, planned_seeds=(), single_runs=findings.runs
    )


def _with_failures(findings: Findings, runs: pd.DataFrame, axes: tuple[str, ...]) -> pd.DataFrame:
    """Mark trainings that failed among all of their arm and setting, before a mean hides them."""
    judged = findings.failure_metric or findings.metric
    marked = runs.reset_index(drop=True)
    found = marked.get(COLLAPSED, pd.Series(0.0, index=marked.index)).fillna(0.0).astype(float)
    for _, own in marked.groupby(list(axes), dropna=False):
        failed = failed_trainings(own[judged].astype(float), found[own.index], findings.chance)
        found[list(failed)] = 1.0
    return marked.assign(**{COLLAPSED: found})


def _averaged(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One row per key: means of numbers, sums of seconds, the first of anything else; the split stands as the seed."""
    groups = table.drop(columns="seed").groupby(keys, sort=False, dropna=False, as_index=False)
    rules = {}
    for column in table.columns.difference([*keys, "seed"]):
        numeric = pd.api.types.is_numeric_dtype(table[column])
        rules[column] = (lambda values: values.mean(skipna=False)) if numeric else "first"
    rules |= {column: how for column, how in (("seconds", "sum"), (COLLAPSED, "max")) if column in rules}
    return groups.agg(rules).rename(columns={SPLIT_AXIS: "seed"})
