"""The database of a store, asked by its own language."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from arelu_meta.store.database import database_rows, is_database


@pytest.mark.usefixtures("store")
def test_rows_of_a_query(store: Path):
    client = MlflowClient(f"sqlite:///{store}")
    made = [client.create_run(client.create_experiment(name)).info.run_id for name in ("a", "b", "c")]
    query = (
        "SELECT name FROM experiments WHERE experiment_id IN (SELECT experiment_id FROM runs WHERE run_uuid IN :ids)"
    )
    assert sorted(database_rows(client, query, {"ids": made[:2]}, several=["ids"])) == [("a",), ("b",)]
    assert database_rows(client, "SELECT COUNT(*) FROM runs WHERE status = :status", {"status": "RUNNING"}) == [(3,)]


@pytest.mark.parametrize(("address", "expected"), [("sqlite:///x.db", True), ("http://127.0.0.1:9", False)])
def test_servers_are_none(address: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert is_database(MlflowClient(address)) is expected
