"""The MLflow store: what cannot be one is refused, and MLflow is kept from reporting to its makers."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from arelu_meta.errors import InputError, StoreError, first_line, without_password
from arelu_meta.store import connection
from arelu_meta.store.connection import check_reachable, experiment_exists, open_store, run_status

CONTINUOUS_INTEGRATION = ("CI", "PYTEST_CURRENT_TEST", "GITHUB_ACTIONS", "GITLAB_CI", "MLFLOW_DISABLE_TELEMETRY")


def unwritable(tmp_path: Path, kind: str) -> Path:
    if kind == "missing folder":
        return tmp_path / "no" / "such" / "mlflow.db"
    path = tmp_path / "mlflow.db"
    if kind == "folder":
        path.mkdir()
    else:
        path.write_text("this is a letter, not a database, and long enough to be read as a header" * 20)
    return path


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (open_store, "missing folder"),
        (open_store, "folder"),
        (open_store, "no database"),
        (experiment_exists, "no database"),
    ],
)
def test_a_store_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable, kind: str):
    """One line with the store and the remedy, at once, and nothing made beside it."""
    path = unwritable(tmp_path, kind)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    with pytest.raises(StoreError, match=r"cannot use the MLflow store .*; set MLFLOW") as raised:
        ask("tests")
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    with pytest.raises(InputError, match="cannot be written"):
        open_store("tests")
    assert list(folder.iterdir()) == []


def test_unknown_kind_of_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "carrier-pigeon://home")
    with pytest.raises(InputError, match="cannot use the MLflow store carrier-pigeon://home"):
        open_store("tests")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("store_uri")
def test_an_experiment_that_was_deleted():
    client, experiment_id = open_store("mine")
    client.delete_experiment(experiment_id)
    with pytest.raises(
        InputError, match=f"'mine' was deleted .* mlflow experiments restore --experiment-id {experiment_id}"
    ):
        open_store("mine")


@pytest.mark.usefixtures("store_uri")
def test_a_run_that_is_not_there_and_a_store_that_is_not():
    """An answer that did not come is no answer: a checkpoint would go on in a run of its own."""
    client, _ = open_store("mine")
    assert run_status(client, "0" * 32) is None

    class Away(MlflowClient):
        def get_run(self, run_id: str) -> Run:
            raise MlflowException(f"no answer about {run_id}")

    with pytest.raises(MlflowException, match="no answer"):
        run_status(Away(), "0" * 32)


def test_mlflow_sends_nothing_home(root: Path, tmp_path: Path):
    """It decides when it is imported, and the package says no before any of its parts imports it.

    In tests and CI it would keep still by itself.
    """
    environment = {name: value for name, value in os.environ.items() if name not in CONTINUOUS_INTEGRATION}
    code = (
        "import arelu_meta.store.connection; from mlflow.telemetry import client; print(client.get_telemetry_client())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg2://me:se:c/ret@host:5432/mlflow", "postgresql+psycopg2://me:***@host:5432/mlflow"),
        ("http://me:x@a and https://you:y@b:1/p", "http://me:***@a and https://you:***@b:1/p"),
        ("postgresql://host/db?password=x&user=me refused", "postgresql://host/db?password=***&user=me refused"),
        ("no answer from http://me@a.org:x@host:5000/p", "no answer from http://me@a.org:***@host:5000/p"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
    ],
)
def test_passwords_are_not_shown(text: str, shown: str):
    assert without_password(text) == shown
    assert first_line(MlflowException(f"{text}\nand more")) == shown


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "getproxies", dict)


@pytest.mark.usefixtures("no_proxy")
def test_a_server_that_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"http://127.0.0.1:{server.getsockname()[1]}/path")


@pytest.mark.usefixtures("no_proxy")
def test_no_server_answers(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(connection, "RETRY_SECONDS", 0.0)
    with pytest.raises(ConnectionError, match=f"no server answers at 127.0.0.1:{port} "):
        check_reachable(f"http://127.0.0.1:{port}")


@pytest.mark.usefixtures("no_proxy")
def test_a_server_that_is_being_restarted_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    tries = iter([ConnectionRefusedError(111, "refused"), ConnectionRefusedError(111, "refused"), None])

    class Line:
        def close(self) -> None: ...

    def connect(*_: object, **__: object) -> Line:
        error = next(tries)
        if error:
            raise error
        return Line()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    check_reachable("http://127.0.0.1:5000")
    assert next(tries, "none left") == "none left"


def test_files_databases_and_what_is_behind_a_proxy_are_not_checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("it was checked"))
    monkeypatch.setattr(connection, "getproxies", lambda: {"https": "http://proxy:3128"})
    for uri in ("sqlite:///mlflow.db", "postgresql://a@b/c", "https://far.away:5000"):
        check_reachable(uri)


def test_a_port_that_is_none_is_named():
    with pytest.raises(ConnectionError, match="Port could not be cast"):
        check_reachable("http://host:port")


@pytest.mark.usefixtures("store_uri")
def test_an_experiment_that_another_process_creates_first_is_used(monkeypatch: pytest.MonkeyPatch):
    """Asked for, it is not there; created, it is: what a second runner on one server meets."""
    _, experiment_id = open_store("shared")
    ask, asked = MlflowClient.get_experiment_by_name, []

    def late(self: MlflowClient, name: str) -> object:
        asked.append(name)
        return None if len(asked) == 1 else ask(self, name)

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", late)
    assert open_store("shared")[1] == experiment_id
    assert len(asked) == 2


@pytest.mark.usefixtures("store_uri")
def test_an_error_that_is_not_the_stores_stays_what_it_is(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise TypeError("a mistake of ours")

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", broken)
    with pytest.raises(TypeError, match="a mistake of ours"):
        open_store("mine")


def test_an_error_without_a_message_is_named(store_uri: str, monkeypatch: pytest.MonkeyPatch):
    def away(*_: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", away)
    with pytest.raises(StoreError, match=f"cannot use the MLflow store {store_uri}: ConnectionResetError; set"):
        open_store("mine")


def test_loggers_and_the_tracking_uri_are_left_as_they_were(store_uri: str, monkeypatch: pytest.MonkeyPatch):
    logger = logging.getLogger("mlflow")
    monkeypatch.setattr(logger, "level", logging.INFO)
    mlflow.set_tracking_uri("sqlite:///another.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri)
    open_store("mine")
    assert logger.level == logging.INFO
    assert mlflow.get_tracking_uri() == "sqlite:///another.db"


def test_an_error_of_the_database_is_raised_and_not_logged_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """MLflow logs a database that cannot be opened with its traceback, then raises; warnings of others stay."""
    path = tmp_path / "mlflow.db"
    with connection.connected(f"sqlite:///{path}") as client:
        run_id = client.create_run("0").info.run_id
    (tmp_path / "mlflow.db").rename(tmp_path / "elsewhere.db")
    path.mkdir()  # nothing that SQLite could open
    with connection.quiet_loggers(logging.WARNING), pytest.raises(MlflowException):
        client.set_terminated(run_id)
    assert "Traceback" not in capfd.readouterr().err
    with pytest.raises(MlflowException):
        client.set_terminated(run_id)
    assert "Traceback" in capfd.readouterr().err  # so it is that logger, and it is as it was
