"""The runs of any MLflow experiment as a table, whoever made them."""

import numpy as np
import pandas as pd
from mlflow import MlflowClient

from arelu_meta.errors import InputError, unknown
from arelu_meta.store.connection import find_experiment
from arelu_meta.store.histories import metric_points, no_garbage_collection, run_pages

JUDGEMENT = "judgement"
"""Tag of a run that holds a judgement, and is none of those that are judged."""
VALUES = {"last": None, "min": np.min, "max": np.max, "mean": np.mean}
"""What counts of a metric that a run logged at several steps."""
LOOKED_AT = 8  # runs whose histories are looked at
SAMPLE = 100  # runs that names are learned from


def runs_of_experiment(
    experiment: str, *, arm: str, metric: str, where: str = "", value: str = "last"
) -> tuple[pd.DataFrame, list[str]]:
    """Give the runs of an experiment that have an arm, as `mlflow.search_runs` would: `params.lr`, `metrics.loss`.

    The store itself looks for them, and they are read page by page.

    Args:
        experiment: Name or id.
        arm: The parameter or tag that tells arms apart: `param:lr`, `tag:model`, or the name alone.
        metric: The metric, which is None where a run has not logged it.
        where: A condition in MLflow's language: `params.model = 'resnet'`.
        value: Of a metric at several steps the `last`, the `min`, the `max` or the `mean`.

    Returns:
        A row per run, and what is to be said of the values.

    Raises:
        InputError: There is no such experiment, or none of its runs has the arm; or MLflow does not understand `where`.
    """
    if value not in VALUES:
        raise unknown("value", value, VALUES)
    client, found = find_experiment(experiment)
    condition = _condition(client, found.experiment_id, arm, where)
    with no_garbage_collection():
        runs = [run for run in run_pages(client, [found.experiment_id], condition) if JUDGEMENT not in run.data.tags]
    rows = []
    for run in runs:
        times = {"start_time": run.info.start_time, "end_time": run.info.end_time}
        row = {"run_id": run.info.run_id, "status": run.info.status, **times}
        row |= {f"params.{key}": text for key, text in run.data.params.items()}
        row |= {f"tags.{key}": text for key, text in run.data.tags.items()}
        row |= {f"metrics.{key}": number for key, number in run.data.metrics.items()}
        rows.append(row)
    key = metric.removeprefix("metric:")
    table, column, said = pd.DataFrame(rows), f"metrics.{key}", []
    measured = [run for run in runs if key in run.data.metrics]
    if measured:
        counted = {run.info.run_id: run.data.metrics[key] for run in measured}
        looked_at = measured if value != "last" else measured[:: len(measured) // LOOKED_AT + 1]
        points = metric_points(client, [run.info.run_id for run in looked_at], key)
        steps = max(map(len, points.values()))
        if reduce := VALUES[value]:
            counted = {run_id: float(reduce([one.value for one in own])) for run_id, own in points.items()}
        if steps > 1:
            said = [f"Runs logged {key} at several steps, up to {steps} of them; of each run the {value} value counts."]
        table[column] = pd.Series([counted.get(run.info.run_id) for run in runs], dtype=object)
    return table, said


def _condition(client: MlflowClient, experiment_id: str, arm: str, where: str) -> str:
    """What MLflow is to look for: runs that have the arm, and fulfil the user's condition."""
    kind, _, name = arm.partition(":")
    kinds = [kind] if name and kind in ("param", "tag") else ["param", "tag"]
    name = name if name and kind in ("param", "tag") else arm
    quote = "`" if "`" not in name else '"'
    for one in kinds:
        condition = " AND ".join(filter(None, [where, f"{one}s.{quote}{name}{quote} LIKE '%'"]))
        if next(run_pages(client, [experiment_id], condition, size=1), None) is not None:
            return condition
    some = list(run_pages(client, [experiment_id], where, size=SAMPLE, pages=1))
    if not some:
        which = f" where {where}" if where else ""
        raise InputError(f"the experiment has no runs{which}; log some, or name another experiment")
    known = {key for run in some for key in (*run.data.params, *run.data.tags) if not key.startswith("mlflow.")}
    raise unknown(" or ".join(kinds), name, known)
