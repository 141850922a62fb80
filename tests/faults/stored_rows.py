"""All that a store holds, row by row, read from its database and folders without MLflow; names stand for ids."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.stored import local_folder

Rows = Counter[tuple[Any, ...]]
OF_RUNS = {
    "param": "SELECT run_uuid, key, value FROM params",
    "point": "SELECT run_uuid, key, value, timestamp, step, CASE WHEN is_nan THEN 1 ELSE 0 END FROM metrics",
    "last": "SELECT run_uuid, key, value, timestamp, step FROM latest_metrics",
    "data set": "SELECT destination_id, name, digest, dataset_source, dataset_schema, dataset_profile FROM inputs JOIN "
    "datasets ON dataset_uuid = source_id WHERE source_type = 'DATASET'",
    "output": "SELECT source_id, step FROM inputs WHERE source_type = 'RUN_OUTPUT'",
}
OF_MODELS = {
    "model param": "SELECT model_id, param_key, param_value FROM logged_model_params",
    "model tag": "SELECT model_id, tag_key, tag_value FROM logged_model_tags WHERE tag_key NOT LIKE 'sync.%'",
    "model point": "SELECT model_id, metric_name, metric_value, metric_timestamp_ms, metric_step, dataset_name, "
    "dataset_digest FROM logged_model_metrics",
}


def read_rows(connection: Any, folder: Path) -> Rows:
    """Read a store, by any driver; artifacts of a server are in `artifacts/` of `folder`."""

    def rows(query: str) -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        cursor.execute(query)
        return [tuple(row) for row in cursor.fetchall()]

    found: Rows = Counter()
    names = dict(rows("SELECT run_uuid, name FROM runs"))
    for run_id, experiment, *rest, place in rows(
        "SELECT run_uuid, experiments.name, status, start_time, end_time, runs.lifecycle_stage, artifact_uri FROM runs "
        "JOIN experiments ON experiments.experiment_id = runs.experiment_id"
    ):
        found["run", names[run_id], experiment, *rest] += 1
        found.update(("file", names[run_id], *one) for one in _digests(local_folder(place, folder), {}))
    for run_id, key, value in rows("SELECT run_uuid, key, value FROM tags WHERE key NOT LIKE 'sync.%'"):
        found["tag", names[run_id], key, names.get(value, value)] += 1
    for kind, query in OF_RUNS.items():
        found.update((kind, names[run_id], *rest) for run_id, *rest in rows(query))
    owners = {}
    for model_id, run_id, place, *rest in rows(
        "SELECT model_id, source_run_id, artifact_location, name, model_type, status FROM logged_models"
    ):
        owners[model_id] = names[run_id]
        found["model", names[run_id], *rest] += 1
        ids = {place: "PLACE", model_id: "MODEL", run_id: "RUN"}
        found.update(("model file", names[run_id], *one) for one in _digests(local_folder(place, folder), ids))
    for kind, query in OF_MODELS.items():
        found.update((kind, owners[model_id], *rest) for model_id, *rest in rows(query))
    return found


def _digests(folder: Path, ids: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Path and digest of each file; ids in it are replaced, the first first."""
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        content = path.read_bytes()
        for name, word in ids.items():
            content = content.replace(name.encode(), word.encode())
        yield path.relative_to(folder).as_posix(), hashlib.sha256(content).hexdigest()


def row_differences(copy: Rows, original: Rows) -> list[str]:
    """Say what is missing in a copy, and what is too much, the first of each kind."""
    found = []
    for word, rows in (("missing", original - copy), ("too much", copy - original)):
        kinds = Counter(row[0] for row in rows.elements())
        found += [
            f"{count} {kind} {word}: {next(row for row in rows if row[0] == kind)}" for kind, count in kinds.items()
        ]
    return found
