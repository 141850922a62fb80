"""New databases: as MLflow makes them, from the cache or not, and whole or not at all."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from arelu_meta.store import new_database
from arelu_meta.store.new_database import make_database

OPEN_FILES = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of one's own, and one folder for each of two stores."""
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()


def content(path: Path) -> tuple[Any, ...]:
    """The statements that made the tables, and how many rows each has."""
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
        tables = [name for kind, name, _ in made if kind == "table"]
        counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in tables}  # noqa: S608
        return made, counts


def test_a_second_store_is_copied_and_names_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_store: Path
):
    """The tables are those that MLflow makes; the experiment `Default` is made when the store is opened."""

    def make(path: Path) -> Any:
        """Give what MLflow would make, made once for all tests, without its experiments."""
        path.write_bytes(new_store.read_bytes())
        return made(path)

    made = new_database.empty_database
    monkeypatch.setattr(new_database, "empty_database", make)
    make_database(tmp_path / "first" / "mlflow.db")
    monkeypatch.delattr(new_database, "empty_database")  # from here on nothing is made
    make_database(tmp_path / "second" / "mlflow.db")
    before, rows = content(tmp_path / "second" / "mlflow.db")
    assert rows["experiments"] == (0,)
    assert rows["alembic_version"] == (1,)
    assert before == content(new_store)[0]
    monkeypatch.chdir(tmp_path / "second")
    client = MlflowClient(f"sqlite:///{tmp_path / 'second' / 'mlflow.db'}")
    assert client.get_experiment("0").artifact_location == str(tmp_path / "second" / "mlruns" / "0")
    assert [path.name for path in (tmp_path / "second").iterdir()] == ["mlflow.db"]


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="only Linux lists the open files of a process")
def test_a_database_that_was_made_is_not_kept_open(tmp_path: Path, new_store: Path):
    """It is a copy that is removed: kept open, it would keep its place on the disk, and two descriptors."""
    path = tmp_path / "empty.db"
    path.write_bytes(new_store.read_bytes())  # whose tables need not be made
    assert new_database.empty_database(path).nbytes == path.stat().st_size
    with path.open("rb"):
        assert opened(path) == 1  # it is seen
    assert opened(path) == 0


def opened(path: Path) -> int:
    """How many descriptors of this process lead to a file."""
    links = [os.readlink(entry) for entry in OPEN_FILES.iterdir() if entry.is_symlink()]
    return links.count(str(path))


def test_another_version_of_mlflow_has_tables_of_its_own(monkeypatch: pytest.MonkeyPatch):
    before = new_database.schema()
    monkeypatch.setattr(mlflow, "__version__", "9.9.9")
    assert new_database.schema() != before


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(_path: Path) -> None:
        raise MlflowException("no")

    (tmp_path / "first" / ".mlflow-new-x").mkdir()  # of a process that was killed
    monkeypatch.setattr(new_database, "empty_database", fail)
    with pytest.raises(MlflowException, match="no"):
        make_database(tmp_path / "first" / "mlflow.db")
    assert list((tmp_path / "first").iterdir()) == []
    assert not (tmp_path / "cache").exists()
