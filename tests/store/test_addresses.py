"""Addresses of stores: what is one, which are the same, and what cannot be used is one line."""

import os
import socket
from pathlib import Path

import mlflow
import pytest

from arelu_meta.errors import InputError
from arelu_meta.store.addresses import connect, full_address, global_tracking_uri, same_store


@pytest.mark.parametrize("wrong", ["", "nowhere", "ftp://host/x", "http://", "sqlite:", "s3://me:secret@bucket"])
def test_what_is_no_address(wrong: str):
    with pytest.raises(InputError, match="is no address of an MLflow store; give sqlite:///FILE") as error:
        full_address(wrong)
    assert "secret" not in str(error.value)


def test_the_path_of_a_file_will_do(tmp_path: Path):
    (tmp_path / "store").write_bytes(b"")
    assert full_address(str(tmp_path / "store")) == f"sqlite:///{tmp_path}/store"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://me@host/runs", "postgresql+psycopg2://you:secret@host:5432/runs", True),
        ("postgresql://me@host/runs", "postgresql://me@host/others", False),
        ("http://host:5000", "http://host:5001", False),
        ("http://host", "https://host", False),
        ("sqlite:///a.db", "sqlite:///b.db", False),
    ],
)
def test_which_are_one_store(one: str, other: str, same: bool):
    assert same_store(one, other) is same


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path):
    with pytest.raises(InputError, match=r"there is no MLflow store sqlite:///.*; check the path"):
        connect(f"sqlite:///{tmp_path}/none.db", create=False)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_database(tmp_path: Path):
    (tmp_path / "text.db").write_text("no database\n" * 100)
    with pytest.raises(InputError, match=r"file is not a database; check the address"):
        connect(f"sqlite:///{tmp_path}/text.db", create=False)


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_a_server_that_is_not_there_is_not_waited_for(scheme: str):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(InputError, match=rf"no server answers at 127\.0\.0\.1:{port}") as error:
        connect(f"{scheme}://me:secret@127.0.0.1:{port}/runs", create=False)
    assert "secret" not in str(error.value)


def test_the_address_of_the_process_comes_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mine.db")
    with global_tracking_uri("sqlite:///other.db"):
        assert mlflow.get_tracking_uri() == "sqlite:///other.db"
    assert os.environ["MLFLOW_TRACKING_URI"] == mlflow.get_tracking_uri() == "sqlite:///mine.db"
