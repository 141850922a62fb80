"""The runs of any MLflow experiment as a table, whoever made them."""

import math
from typing import Any

import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Run

from arelu_meta.errors import InputError, unknown
from arelu_meta.store.connection import find_experiment
from arelu_meta.store.database import database_rows, is_database
from arelu_meta.store.histories import metric_points, no_garbage_collection, run_pages

JUDGEMENT = "judgement"
"""Tag of a run that holds a judgement, and is none of those that are judged."""
VALUES = {"last": None, "min": np.min, "max": np.max, "mean": np.mean}
"""What counts of a metric that a run logged at several steps."""
LOOKED_AT = 8  # runs whose histories are looked at
SAMPLE = 100  # runs that names are learned from
OF_EXPERIMENT = "experiment_id = :id AND lifecycle_stage = 'active'"
BELOW = f"WHERE run_uuid IN (SELECT run_uuid FROM runs WHERE {OF_EXPERIMENT})"  # noqa: S608  (our own words)
RUNS = (
    f"SELECT run_uuid, status, start_time, end_time FROM runs WHERE {OF_EXPERIMENT} "  # noqa: S608  (our own words)
    "ORDER BY start_time DESC, run_uuid"
)
PARAMS, TAGS = (f"SELECT run_uuid, key, value FROM {table} {BELOW}" for table in ("params", "tags"))  # noqa: S608  (our own words)
METRICS = f"SELECT run_uuid, key, value, is_nan FROM latest_metrics {BELOW}"  # noqa: S608  (our own words)


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
    condition, arms = _condition(client, found.experiment_id, arm, where)
    with no_garbage_collection():
        if where or not is_database(client):
            rows = [_row_of(run) for run in run_pages(client, [found.experiment_id], condition)]
        else:
            rows = [row for row in _rows_of_database(client, found.experiment_id) if arms in row]
    rows = [row for row in rows if f"tags.{JUDGEMENT}" not in row]
    key = metric.removeprefix("metric:")
    table, column, said = pd.DataFrame(rows), f"metrics.{key}", []
    measured = [row for row in rows if column in row]
    if measured:
        counted = {row["run_id"]: row[column] for row in measured}
        looked_at = measured if value != "last" else measured[:: len(measured) // LOOKED_AT + 1]
        points = metric_points(client, [row["run_id"] for row in looked_at], key)
        steps = max(map(len, points.values()))
        if reduce := VALUES[value]:
            counted = {run_id: float(reduce([one.value for one in own])) for run_id, own in points.items()}
        if steps > 1:
            said = [f"Runs logged {key} at several steps, up to {steps} of them; of each run the {value} value counts."]
        table[column] = pd.Series([counted.get(row["run_id"]) for row in rows], dtype=object)
    return table, said


def _row_of(run: Run) -> dict[str, Any]:
    """A run as MLflow's client gives it."""
    info, data = run.info, run.data
    row = {"run_id": info.run_id, "status": info.status, "start_time": info.start_time, "end_time": info.end_time}
    for kind, values in (("params", data.params), ("tags", data.tags), ("metrics", data.metrics)):
        row |= {f"{kind}.{key}": value for key, value in values.items()}
    return row


def _rows_of_database(client: MlflowClient, experiment_id: str) -> list[dict[str, Any]]:
    """All runs of an experiment, in the order that MLflow's client gives them."""
    values = {"id": int(experiment_id)}
    rows: dict[str, dict[str, Any]] = {}
    for run_id, status, start, end in database_rows(client, RUNS, values):
        rows[run_id] = {"run_id": run_id, "status": status, "start_time": start, "end_time": end}
    for kind, query in (("params", PARAMS), ("tags", TAGS)):
        for run_id, key, value in database_rows(client, query, values):
            rows[run_id][f"{kind}.{key}"] = value
    for run_id, key, value, is_nan in database_rows(client, METRICS, values):
        rows[run_id][f"metrics.{key}"] = math.nan if is_nan else value
    return list(rows.values())


def _condition(client: MlflowClient, experiment_id: str, arm: str, where: str) -> tuple[str, str]:
    """What MLflow is to look for, runs that have the arm and fulfil the user's condition; and the column of the arm."""
    kind, _, name = arm.partition(":")
    kinds = [kind] if name and kind in ("param", "tag") else ["param", "tag"]
    name = name if name and kind in ("param", "tag") else arm
    quote = "`" if "`" not in name else '"'
    for one in kinds:
        condition = " AND ".join(filter(None, [where, f"{one}s.{quote}{name}{quote} LIKE '%'"]))
        if next(run_pages(client, [experiment_id], condition, size=1), None) is not None:
            return condition, f"{one}s.{name}"
    some = list(run_pages(client, [experiment_id], where, size=SAMPLE, pages=1))
    if not some:
        which = f" where {where}" if where else ""
        raise InputError(f"the experiment has no runs{which}; log some, or name another experiment")
    known = {key for run in some for key in (*run.data.params, *run.data.tags) if not key.startswith("mlflow.")}
    raise unknown(" or ".join(kinds), name, known)
