"""What a store holds, read from its database and folders without MLflow: points, states, models, tables."""

import hashlib
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
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
        """All points but those that are times."""
        return {key: value for key, value in self.points.items() if not key[0].endswith(TIMES)}


def read_store(database: Path, folder: Path) -> list[StoredRun]:
    """Read all runs of an SQLite store; relative artifact folders are below `folder`."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as store:
        runs = {
            row[0]: (StoredRun(row[0], row[1] or "", row[2], row[3] != "active"), row[4])
            for row in store.execute("SELECT run_uuid, name, status, lifecycle_stage, artifact_uri FROM runs")
        }
        for run_id, key, value in store.execute("SELECT run_uuid, key, value FROM tags"):
            if key == "mlflow.parentRunId":
                runs[run_id][0].parent = value
            elif key == "spec_hash":
                runs[run_id][0].identity = value
        counts: Counter[tuple[str, str, int]] = Counter()
        for run_id, key, step, value, is_nan in store.execute(
            "SELECT run_uuid, key, step, value, is_nan FROM metrics ORDER BY timestamp"
        ):
            counts[run_id, key, step] += 1
            runs[run_id][0].points[key, step] = float("nan") if is_nan else value
        for (run_id, key, step), count in counts.items():
            if count > 1:
                runs[run_id][0].doubled.append((key, step))
        models = list(store.execute("SELECT source_run_id, artifact_location, status FROM logged_models"))
    for run, artifacts in runs.values():
        if not run.identity:
            continue  # a parent, whose files name the runs below it
        run.files.update(_digests(_local(artifacts, folder)))
        for _, location, status in (model for model in models if model[0] == run.run_id):
            found = _digests(_local(location, folder), weights=True)
            run.files.update(found or {f"model in state {status}": "without weights"})
            run.files["models"] = str(int(run.files.get("models", "0")) + 1)
    return [run for run, _ in runs.values()]


def _local(uri: str, folder: Path) -> Path:
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
