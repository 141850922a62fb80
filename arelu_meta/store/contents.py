"""What an MLflow store holds, in numbers: experiments, runs by status, models, sizes, runs without a process."""

import socket
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.entities import Experiment, RunStatus

from arelu_meta.errors import without_password
from arelu_meta.runtime.machine import has_ended
from arelu_meta.store.addresses import sqlite_path
from arelu_meta.store.connection import quiet
from arelu_meta.store.copied_models import model_pages
from arelu_meta.store.database import database_rows, is_database
from arelu_meta.store.histories import no_garbage_collection, run_pages
from arelu_meta.store.sending import PROCESS


@dataclass
class StoredExperiment:
    """One experiment.

    Attributes:
        name: its name
        runs: how many by status; of an experiment on a server no more than its newest 1,000
        models: how many
        bytes: of its artifacts; None where they are not in a folder of this machine
    """

    name: str
    runs: dict[str, int]
    models: int
    bytes: int | None


@dataclass
class Contents:
    """What a store holds.

    Attributes:
        store: its address, without password
        bytes: size of its database; None where that is no file of this machine
        experiments: all but deleted ones
        stale: ids of runs that are RUNNING, and whose process on this machine is gone
        elsewhere: ids of runs that are RUNNING by what another machine, or nobody, says
    """

    store: str
    bytes: int | None
    experiments: list[StoredExperiment] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def read_contents(client: MlflowClient) -> Contents:
    """Count what a store holds, and look for the processes of what is running."""
    path = sqlite_path(client.tracking_uri)
    size = path.stat().st_size if path is not None else None
    found = Contents(without_password(client.tracking_uri), size)
    with quiet(), no_garbage_collection():
        experiments = client.search_experiments(max_results=50_000)
        for experiment in experiments:
            runs = _statuses(client, experiment.experiment_id)
            models = sum(1 for _ in model_pages(client, [experiment.experiment_id]))
            if runs or models:
                found.experiments.append(StoredExperiment(experiment.name, runs, models, _folder_size(experiment)))
        running = f"attributes.status = '{RunStatus.to_string(RunStatus.RUNNING)}'"
        for run in run_pages(client, [one.experiment_id for one in experiments], running):
            process = run.data.tags.get(PROCESS, "")
            if has_ended(process):
                found.stale.append(run.info.run_id)
            elif process.partition(":")[0] != socket.gethostname():
                found.elsewhere.append(run.info.run_id)
    return found


def _statuses(client: MlflowClient, experiment_id: str) -> dict[str, int]:
    """Count runs by status.

    MLflow's client counts none, and reads ten thousand in a quarter of a minute: a database is asked itself, and of a
    server's runs no more than the newest are read.
    """
    if not is_database(client):
        return dict(Counter(run.info.status for run in run_pages(client, [experiment_id], pages=1)))
    query = "SELECT status, COUNT(*) FROM runs WHERE experiment_id = :id AND lifecycle_stage = 'active' GROUP BY status"
    return dict(database_rows(client, query, {"id": int(experiment_id)}))


def _folder_size(experiment: Experiment) -> int | None:
    """Size of the artifacts; None where they are not in a folder of this machine."""
    parts = urlsplit(experiment.artifact_location)
    folder = Path(unquote(parts.path) if parts.scheme == "file" else experiment.artifact_location)
    if parts.scheme not in ("", "file"):
        return None
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
