"""What a store holds, read from its database and folders without MLflow: points, states, models, tables."""

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

Points = dict[tuple[str, int], float]
TIMES = ("seconds", "per_second")  # endings of metrics that are no two times the same


@dataclass
class StoredRun:
    """One run of a store."""

    run_id: str
    name: str
    status: str
    deleted: bool
    parent: str = ""
    identity: str = ""
    points: Points = field(default_factory=dict)
    doubled: list[tuple[str, int]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # digests of tables and weights, by name

    @property
    def key(self) -> str:
        """What is the same in another store: the identity of its settings, or its name where it has none."""
        return self.identity or self.name

    @property
    def measured(self) -> Points:
        """All points but those that are times; of a comparison's own run, the numbers of its last report.

        It may be reported several times, as when a cell was late: each report has a step of its own, what has not
        changed stays as it was, and what is no more is NaN.
        """
        points = {key: value for key, value in self.points.items() if not key[0].endswith(TIMES)}
        if self.identity:
            return points
        last = {name: value for (name, _), value in sorted(points.items(), key=lambda point: point[0])}
        return {(name, 0): value for name, value in last.items() if value == value}


def read_store(database: Path, folder: Path) -> list[StoredRun]:
    """Read all runs of an SQLite store; relative artifact folders are below `folder`."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return read_runs(connection, folder)


def read_runs(connection: Any, folder: Path) -> list[StoredRun]:
    """Read all runs from a database, by any driver; artifacts of a server are in `artifacts/` of `folder`."""

    def rows(columns: str, table: str, order: str = "1") -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        cursor.execute(f"SELECT {columns} FROM {table} ORDER BY {order}")  # noqa: S608
        return list(cursor.fetchall())

    runs = {
        row[0]: (StoredRun(row[0], row[1] or "", row[2], row[3] != "active"), row[4])
        for row in rows("run_uuid, name, status, lifecycle_stage, artifact_uri", "runs")
    }
    for run_id, key, value in rows("run_uuid, key, value", "tags"):
        if key == "mlflow.parentRunId":
            runs[run_id][0].parent = value
        elif key == "spec_hash":
            runs[run_id][0].identity = value
    for run_id, key, step, value, is_nan in rows("run_uuid, key, step, value, is_nan", "metrics", "timestamp"):
        run = runs[run_id][0]
        if (key, step) in run.points:
            run.doubled.append((key, step))
        run.points[key, step] = float("nan") if is_nan else value
    models = rows("source_run_id, artifact_location, status", "logged_models")
    for run, artifacts in runs.values():
        if not run.identity:
            continue  # a parent, whose files name the runs below it
        run.files.update(_digests(local_folder(artifacts, folder)))
        for _, location, status in (model for model in models if model[0] == run.run_id):
            found = _digests(local_folder(location, folder), weights=True)
            run.files.update(found or {f"model in state {status}": "without weights"})
            run.files["models"] = str(int(run.files.get("models", "0")) + 1)
    return [run for run, _ in runs.values()]


def local_folder(uri: str, folder: Path) -> Path:
    """Where artifacts are: in a folder, or in `artifacts/` of a server."""
    if uri.startswith("mlflow-artifacts:"):
        return folder / "artifacts" / unquote(urlsplit(uri).path).lstrip("/")
    return folder / (unquote(urlsplit(uri).path) if uri.startswith("file:") else uri)


def _digests(folder: Path, *, weights: bool = False) -> dict[str, str]:
    endings = (".safetensors",) if weights else (".csv", ".json")
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in endings]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def differences(run: StoredRun, other: StoredRun) -> list[str]:
    """Say in what a run differs from the one that was not disturbed, each in a line."""
    found = [f"{name} at step {step} twice" for name, step in run.doubled]
    mine, theirs = run.measured, other.measured
    found += [f"{name} at step {step} missing" for name, step in sorted(theirs.keys() - mine.keys())]
    found += [f"{name} at step {step} too many" for name, step in sorted(mine.keys() - theirs.keys())]
    for key in sorted(mine.keys() & theirs.keys()):
        if mine[key] != theirs[key] and not (mine[key] != mine[key] and theirs[key] != theirs[key]):
            found.append(f"{key[0]} at step {key[1]} is {mine[key]!r}, not {theirs[key]!r}")
    for name in sorted(run.files.keys() | other.files.keys()):
        if run.files.get(name) != other.files.get(name):
            found.append(f"{name} differs: {run.files.get(name, 'missing')[:12]} {other.files.get(name, 'new')[:12]}")
    return found
