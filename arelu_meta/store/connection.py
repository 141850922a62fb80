"""The MLflow store: where it is, opening it, and what its runs say of themselves.

It is `sqlite:///mlflow.db` in the working folder unless MLFLOW_TRACKING_URI says otherwise.
"""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import mlflow
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, Run, RunStatus
from mlflow.exceptions import MlflowException

from arelu_meta.errors import InputError, StoreError, first_line
from arelu_meta.store.address import check_reachable, without_password

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_URI = "sqlite:///mlflow.db"
NOT_THERE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # no such run, or nothing that could be a run's id
DIVERGED = "diverged"  # tag of a run whose loss was no longer finite: where that was


class RunSpec(Protocol):
    """What the store asks of a run's settings."""

    @property
    def task(self) -> str:
        """Name of the task file."""
        ...

    @property
    def identity(self) -> str:
        """SHA-256 of all settings."""
        ...

    def flat(self) -> dict[str, Any]:
        """All settings in one level."""
        ...

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """All settings as plain values."""
        ...


def store_uri() -> str:
    """The address of the store in use."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def shown_uri() -> str:
    """The address of the store as it may be shown."""
    return without_password(store_uri())


def open_store(experiment: str) -> tuple[MlflowClient, str]:
    """Connect to the store and give the id of the experiment in it; what is missing is made."""
    with _connected() as client:
        found = client.get_experiment_by_name(experiment)
        if found is None:
            return client, client.create_experiment(experiment)
    if found.lifecycle_stage == LifecycleStage.DELETED:
        raise InputError(
            f"experiment {experiment!r} was deleted in the MLflow store {shown_uri()}; bring it back with "
            f"mlflow experiments restore --experiment-id {found.experiment_id}"
        )
    return client, str(found.experiment_id)


def exists(experiment: str) -> bool:
    """Tell whether the store has an experiment of this name; nothing is made."""
    uri = store_uri()
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return False
    with _connected() as client:
        return client.get_experiment_by_name(experiment) is not None


def run_tags(run_id: str) -> dict[str, str]:
    """Identity and task of a stored run."""
    mlflow.set_tracking_uri(store_uri())
    try:
        data = MlflowClient().get_run(run_id).data
        return {"spec_hash": data.tags["spec_hash"], "task": data.params["task"]}
    except (MlflowException, KeyError) as error:
        reason = "it has no spec_hash" if isinstance(error, KeyError) else first_line(error)
        raise InputError(f"no run {run_id!r} of arelu_meta in {shown_uri()} ({reason}); check the id") from error


def attach_figure(run_id: str, figure: "Figure", path: str) -> None:
    """Add a figure to the artifacts of a stored run."""
    mlflow.set_tracking_uri(store_uri())
    try:
        MlflowClient().log_figure(run_id, figure, path)
    except MlflowException as error:
        raise InputError(f"cannot add {path} to run {run_id!r} in {shown_uri()}: {first_line(error)}") from error


def finished_metrics(spec: RunSpec, *, experiment: str) -> tuple[str, dict[str, float]] | None:
    """Run id and last metrics of a finished run of this very spec, the latest; None without one, or without a store."""
    if not exists(experiment):
        return None  # nothing is written before the run itself is sure to start
    client, experiment_id = open_store(experiment)
    condition = f"tags.spec_hash = '{spec.identity}' and attributes.status = 'FINISHED'"
    runs = client.search_runs([experiment_id], condition, order_by=["attributes.end_time DESC"], max_results=1)
    return (runs[0].info.run_id, dict(runs[0].data.metrics)) if runs else None


def has_finished(run_id: str) -> bool:
    """Tell whether a run is in the store of this environment, and over."""
    return run_status(MlflowClient(store_uri()), run_id) == RunStatus.to_string(RunStatus.FINISHED)


def has_diverged(run: Run) -> bool:
    """Tell whether a stored run ended because its loss was no longer finite."""
    return run.info.status == RunStatus.to_string(RunStatus.FAILED) and DIVERGED in run.data.tags


def run_status(client: MlflowClient, run_id: str) -> str | None:
    """How a run stands; None when it is not in the store, or in its trash."""
    try:
        info = client.get_run(run_id).info
    except MlflowException as error:
        if error.error_code in NOT_THERE:
            return None
        raise
    return info.status if info.lifecycle_stage == "active" else None


@contextmanager
def _connected() -> Iterator[MlflowClient]:
    """Connect to the store; one that cannot be used is wrong input, in one line.

    One process at a time for a file of our own: several that create the tables of one new SQLite file at once break
    each other.
    """
    uri = store_uri()
    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        check_reachable(uri)  # MLflow itself would try for minutes, in silence
        with _store_lock(uri):
            mlflow.set_tracking_uri(uri)
            yield MlflowClient()
    except Exception as error:
        raise StoreError(
            f"cannot use the MLflow store {without_password(f'{uri}: {first_line(error)}')}; "
            "set MLFLOW_TRACKING_URI to one that can be written"
        ) from error


@contextmanager
def _store_lock(uri: str) -> Iterator[None]:
    if not uri.startswith("sqlite:///"):
        yield
        return
    path = Path(uri.removeprefix("sqlite:///"))
    if not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written")
    if path.exists():
        # MLflow would try for two minutes to open what is no database.
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA schema_version")
    with FileLock(f"{path}.lock"):
        yield
