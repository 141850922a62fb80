"""The MLflow store: its address, connecting to it, and what its runs say of themselves.

It is `sqlite:///mlflow.db` in the working folder unless MLFLOW_TRACKING_URI says otherwise. All calls name the store:
MLflow's own tracking URI, active run and loggers belong to whoever calls us.
"""

import logging
import os
import socket
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Experiment, LifecycleStage, Run, RunStatus
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from arelu_meta.errors import InputError, StoreError, first_line, unknown, without_password
from arelu_meta.store.new_database import make_database
from arelu_meta.store.sources import check_store_exists, store_exists, store_uri

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIVERGED = "diverged"  # tag of a run whose loss was no longer finite: where that was
RETRY_SECONDS = 20.0  # a server that is being restarted answers again by then
_CONNECT_TIMEOUT = 5.0
PORTS = {"http": 80, "https": 443}
_NO_SUCH_RUN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # no such run, or nothing that could be its id
STORE_ERRORS = (MlflowException, SQLAlchemyError, sqlite3.Error, OSError, ImportError)  # ImportError: a missing driver


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


def is_server() -> bool:
    """Whether the store in use is a server, which may hang; a file on this machine does not."""
    return store_uri().startswith("http")


def check_reachable(address: str, seconds: float | None = None, ports: Mapping[str, int] = PORTS) -> None:
    """Raise ConnectionError where no server answers at an address; one behind a proxy cannot be checked.

    Args:
        address: of the store
        seconds: how long it is tried
        ports: the schemes that lead to a server, and their usual ports
    """
    parts = urlsplit(address)
    scheme = parts.scheme.partition("+")[0]
    if scheme not in ports or parts.hostname is None or scheme in getproxies():
        return
    try:
        port = parts.port or ports[scheme]
    except ValueError as error:
        raise ConnectionError(str(error)) from error
    end = time.monotonic() + (RETRY_SECONDS if seconds is None else seconds)
    while True:
        try:
            socket.create_connection((parts.hostname, port), timeout=_CONNECT_TIMEOUT).close()
        except OSError as error:
            if time.monotonic() >= end:
                reason = error.strerror or error
                raise ConnectionError(f"no server answers at {parts.hostname}:{port} ({reason})") from error
            time.sleep(1)
        else:
            return


def open_store(experiment: str, *, wait: float | None = None) -> tuple[MlflowClient, str]:
    """Connect to the store and give the id of the experiment in it; what is missing is created.

    A server has `wait` seconds to begin to answer; None: as long as one takes that is being restarted.
    """
    with connected(seconds=wait) as client:
        stored = client.get_experiment_by_name(experiment)
        if stored is None:
            try:
                return client, client.create_experiment(experiment)
            except MlflowException as error:
                stored = client.get_experiment_by_name(experiment)
                if stored is None:  # another process would have created it meanwhile
                    raise error from None
    if stored.lifecycle_stage == LifecycleStage.DELETED:
        raise InputError(
            f"experiment {experiment!r} was deleted in the MLflow store {without_password(store_uri())}; restore it "
            f"with mlflow experiments restore --experiment-id {stored.experiment_id}"
        )
    return client, str(stored.experiment_id)


def experiment_exists(name: str) -> bool:
    """Tell whether the store has an experiment of this name; nothing is created."""
    if not store_exists():
        return False
    with connected() as client:
        return client.get_experiment_by_name(name) is not None


def find_experiment(name: str) -> tuple[MlflowClient, Experiment]:
    """Find an experiment by name or id, whoever made it; one that is not there is wrong input, and is not created."""
    known: list[str] = []
    if store_exists():
        with connected() as client:
            stored = client.search_experiments()
            for one in stored:
                if name in (one.name, str(one.experiment_id)):
                    return client, one
            known = [str(one.name) for one in stored]
    where = f"in {without_password(store_uri())}; MLFLOW_TRACKING_URI names another store"
    raise InputError(f"{unknown('experiment', name, known)} ({where})")


def finished_metrics(spec: RunSpec, *, experiment: str) -> tuple[str, dict[str, float]] | None:
    """Run id and last metrics of a finished run of this very spec, the latest; None without one, or without a store."""
    if not experiment_exists(experiment):
        return None  # nothing is written before the run itself is sure to start
    client, experiment_id = open_store(experiment)
    condition = f"tags.spec_hash = '{spec.identity}' and attributes.status = 'FINISHED'"
    runs = client.search_runs([experiment_id], condition, order_by=["attributes.end_time DESC"], max_results=1)
    return (runs[0].info.run_id, dict(runs[0].data.metrics)) if runs else None


def has_diverged(run: Run) -> bool:
    """Tell whether a stored run ended because its loss was no longer finite."""
    return run.info.status == RunStatus.to_string(RunStatus.FAILED) and DIVERGED in run.data.tags


def has_finished(run_id: str) -> bool:
    """Tell whether a run is in the store of this environment, and over."""
    return run_status(MlflowClient(store_uri()), run_id) == RunStatus.to_string(RunStatus.FINISHED)


def run_status(client: MlflowClient, run_id: str) -> str | None:
    """Status of a run; None when it is not in the store, or in its trash."""
    try:
        info = client.get_run(run_id).info
    except MlflowException as error:
        if error.error_code in _NO_SUCH_RUN:
            return None
        raise
    return info.status if info.lifecycle_stage == LifecycleStage.ACTIVE else None


def get_run(run_id: str) -> Run:
    """Give a stored run of ours; one that is not there, or not ours, is wrong input."""
    check_store_exists()
    try:
        with quiet():
            run = MlflowClient(store_uri()).get_run(run_id)
        if "spec_hash" not in run.data.tags:
            raise MlflowException("it has no spec_hash")
    except MlflowException as error:
        uri = without_password(store_uri())
        raise InputError(f"no run {run_id!r} of arelu_meta in {uri} ({first_line(error)}); check the id") from error
    return run


def read_artifact(run_id: str, path: str) -> str:
    """Read a text artifact of a stored run."""
    try:
        with quiet(), tempfile.TemporaryDirectory() as folder:
            return Path(MlflowClient(store_uri()).download_artifacts(run_id, path, folder)).read_text()
    except (MlflowException, OSError) as error:
        raise InputError(f"run {run_id!r} has no {path} in the store ({first_line(error)})") from error


def attach_figure(run_id: str, figure: "Figure", path: str) -> None:
    """Add a figure to the artifacts of a stored run."""
    with attaching(run_id, path):
        MlflowClient(store_uri()).log_figure(run_id, figure, path)


@contextmanager
def attaching(run_id: str, what: str) -> Iterator[None]:
    """Say in one line what could not be added to a stored run."""
    try:
        yield
    except MlflowException as error:
        uri = without_password(store_uri())
        raise InputError(f"cannot add {what} to run {run_id!r} in {uri}: {first_line(error)}") from error


@contextmanager
def quiet(level: int = logging.ERROR) -> Iterator[None]:
    """Silence MLflow's messages and warnings about choices of its own for a while: none of it is the user's doing."""
    with quiet_loggers(level), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def quiet_loggers(level: int = logging.ERROR) -> Iterator[None]:
    """Silence MLflow's messages, and tracebacks that its database logs and then raises; not Python's warnings."""
    wanted = {**dict.fromkeys(("mlflow", "alembic", "urllib3"), level), "mlflow.store.db.utils": logging.CRITICAL}
    before = {name: logging.getLogger(name).level for name in wanted}
    for name, one in wanted.items():
        logging.getLogger(name).setLevel(one)
    try:
        yield
    finally:
        for name, one in before.items():
            logging.getLogger(name).setLevel(one)


@contextmanager
def connected(
    uri: str = "",
    *,
    seconds: float | None = None,
    ports: Mapping[str, int] = PORTS,
    remedy: str = "set MLFLOW_TRACKING_URI to one that can be written",
) -> Iterator[MlflowClient]:
    """Connect to a store, by default the one in use; one that cannot be used is wrong input, in one line.

    Args:
        uri: its address
        seconds: how long a server that does not answer is waited for; None: while one may be restarted
        ports: see `check_reachable`
        remedy: what to do where it cannot be used
    """
    uri = uri or store_uri()
    try:
        check_reachable(uri, seconds, ports)  # MLflow itself would try for minutes, in silence
        with quiet(logging.WARNING), _sqlite_lock(uri):
            yield MlflowClient(uri)
    except STORE_ERRORS as error:
        line = without_password(f"{uri}: {first_line(error)}")
        raise StoreError(f"cannot use the MLflow store {line}; {remedy}") from error


@contextmanager
def _sqlite_lock(uri: str) -> Iterator[None]:
    """One process at a time: several that create the tables of one new SQLite file at once break each other."""
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
        if not path.exists() or path.stat().st_size == 0:
            make_database(path)
        yield
