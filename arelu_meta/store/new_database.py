"""New SQLite databases for MLflow, whose tables take it seconds to make: an empty one is kept in the user's cache."""

import hashlib
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import mlflow
import numpy as np
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from numpy.typing import NDArray

from arelu_meta.data.files import cached_arrays

_NEW = ".mlflow-new-"  # beginning of the folder that a database is made in


def make_database(path: Path) -> None:
    """Make a database with MLflow's tables beside its place, then put it there: killed, it leaves none in the making.

    In a thread: an interruption would be lost in the midst of it, or leave tables half made.
    """
    for left in path.parent.glob(f"{_NEW}*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_NEW, dir=path.parent))
    errors: list[Exception] = []
    ended = threading.Event()

    def make() -> None:
        try:
            kept = cached_arrays("mlflow_store", schema(), lambda: {"database": empty_database(folder / "empty.db")})
            (folder / path.name).write_bytes(kept["database"].tobytes())
        except Exception as error:
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=make, name="makes the tables of MLflow", daemon=True).start()
    try:
        while not ended.wait(0.05):
            pass
        if errors:
            raise errors[0]
        (folder / path.name).replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def schema() -> str:
    """Digest of MLflow's version and of its migrations: another has other tables."""
    folder = Path(mlflow.__path__[0]) / "store" / "db_migrations" / "versions"
    migrations = sorted(file.name for file in folder.glob("*.py"))
    return hashlib.sha256("\n".join([mlflow.__version__, *migrations]).encode()).hexdigest()


def empty_database(path: Path) -> NDArray[np.uint8]:
    """Let MLflow make a database, and give its bytes without the experiment `Default`.

    That one names a folder, here that of another store; MLflow makes it where it is missing.
    """
    store = SqlAlchemyStore(f"sqlite:///{path}", str(path.parent / "artifacts"))
    store.engine.dispose()  # a client would keep connections to it, and the space of the removed file with them
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM experiments")
        connection.commit()
    return np.fromfile(path, np.uint8)
