"""The MLflow store: what cannot be one is refused, and MLflow is kept from reporting to its makers."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from arelu_meta.errors import InputError, StoreError
from arelu_meta.store.connection import exists, open_store, run_status

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
    [(open_store, "missing folder"), (open_store, "folder"), (open_store, "no database"), (exists, "no database")],
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


@pytest.mark.parametrize("part", ["store.connection", "store.tracking", "kinds.few_shot.model"])
def test_mlflow_sends_nothing_home(root: Path, tmp_path: Path, part: str):
    """Whichever part is the first to import it; it decides then. In tests and CI it would keep still by itself."""
    environment = {name: value for name, value in os.environ.items() if name not in CONTINUOUS_INTEGRATION}
    code = f"import arelu_meta.{part}; from mlflow.telemetry.client import get_telemetry_client as c; print(c())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"
