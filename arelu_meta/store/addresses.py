"""Addresses of MLflow stores as a user writes them, and stores other than the one in use."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import mlflow
from mlflow import MlflowClient

from arelu_meta.errors import InputError, without_password
from arelu_meta.store.connection import PORTS, connected

SQLITE = "sqlite:///"
SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "file")
DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306}
FORMS = "give sqlite:///FILE, http://HOST:PORT or postgresql://USER@HOST/DATABASE"


def full_address(address: str) -> str:
    """Give the address that MLflow knows; the path of an SQLite file will do.

    Raises:
        InputError: it is none.

    >>> full_address("mlflow.db"), full_address("http://host:5000/")
    ('sqlite:///mlflow.db', 'http://host:5000')
    """
    scheme, separator, rest = address.partition("://")
    if separator and rest and scheme.partition("+")[0] in SCHEMES:
        return address.rstrip("/")
    if not separator and (Path(address).is_file() or address.endswith((".db", ".sqlite"))):
        return f"{SQLITE}{address}"
    raise InputError(f"{without_password(address)!r} is no address of an MLflow store; {FORMS}")


def sqlite_path(address: str) -> Path | None:
    """Where the file of an SQLite store is; None for other stores."""
    return Path(address.removeprefix(SQLITE)) if address.startswith(SQLITE) else None


def same_store(one: str, other: str) -> bool:
    """Tell whether two addresses are one store, as far as they say: not whether a server uses that database.

    >>> same_store("sqlite:///a.db", "sqlite:///./a.db"), same_store("http://me:secret@host", "http://HOST:80")
    (True, True)
    """
    return place_of(one) == place_of(other)


def place_of(address: str) -> tuple[object, ...]:
    """What an address leads to, whoever comes and however it is written."""
    if (path := sqlite_path(address)) is not None:
        return ("sqlite", path.resolve())
    parts = urlsplit(address)
    scheme = parts.scheme.partition("+")[0]
    port = parts.port or {**PORTS, **DATABASE_PORTS}.get(scheme)
    return (scheme, parts.hostname, port, parts.path.rstrip("/"))


def connect(address: str, *, create: bool) -> MlflowClient:
    """Connect to the store at an address.

    Args:
        address: as `full_address` gives it
        create: make an SQLite file that is not there

    Raises:
        InputError: there is none, or it cannot be used.
    """
    path = sqlite_path(address)
    if path is not None and not path.exists() and not create:
        raise InputError(f"there is no MLflow store {address}; check the path")
    ports = {**PORTS, **DATABASE_PORTS}
    with connected(address, seconds=0.0, ports=ports, remedy="check the address") as client:
        client = MlflowClient(address, registry_uri=address)
        client.search_experiments(max_results=1)
    return client


@contextmanager
def global_tracking_uri(uri: str) -> Iterator[None]:
    """Point MLflow's flavours and registries, which take no client, to a store; then back to where they pointed."""
    before, environment = mlflow.get_tracking_uri(), os.environ.get("MLFLOW_TRACKING_URI")
    if before == uri:
        yield
        return
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before if environment else None)  # type: ignore[arg-type]  # None: MLflow's default
        if environment:
            os.environ["MLFLOW_TRACKING_URI"] = environment  # MLflow sets it too
