"""Many runs asked for together: the same answers as one by one, in a few queries."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric
from sqlalchemy import Engine, event

from arelu_meta.store.connection import open_store
from arelu_meta.store.histories import histories, text_artifacts
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = [MLFLOW_WARNINGS, pytest.mark.usefixtures("store")]


@contextmanager
def counted_queries() -> Iterator[list[str]]:
    """The statements that are sent to any database meanwhile."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture
def client() -> MlflowClient:
    return open_store("tests")[0]


def make_runs(client: MlflowClient, count: int) -> list[str]:
    runs = []
    for number in range(count):
        run_id = client.create_run(client.get_experiment_by_name("tests").experiment_id).info.run_id
        points = [Metric("loss", number + step, 1, step) for step in (1, 0)]
        client.log_batch(run_id, [*points, Metric("loss", 0.5, 2, 1), Metric("other", 7.0, 1, 0)])
        runs.append(run_id)
    return runs


def test_value_by_step_and_of_a_step_twice_the_last(client: MlflowClient, monkeypatch: pytest.MonkeyPatch):
    runs = make_runs(client, 2)
    expected = {runs[0]: {0: 0.0, 1: 0.5}, runs[1]: {0: 1.0, 1: 0.5}}
    assert histories(client, runs, "loss") == expected
    assert histories(client, runs, "nothing") == {runs[0]: {}, runs[1]: {}}
    monkeypatch.setattr("arelu_meta.store.histories.is_database", lambda _client: False)
    assert histories(client, runs, "loss") == expected  # as of a server, which has no such call


def test_queries_do_not_grow_with_runs(client: MlflowClient):
    runs, counts = make_runs(client, 12), []
    for some in (runs[:2], runs):
        with counted_queries() as statements:
            histories(client, some, "loss")
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_text_of_runs_that_have_it(client: MlflowClient, tmp_path: Path):
    with_it, without, moved = (client.get_run(run_id) for run_id in make_runs(client, 3))
    client.log_text(with_it.info.run_id, "a,b\n1,2\n", "table.csv")
    client.log_text(moved.info.run_id, "a,b\n1,2\n", "table.csv")
    for file in Path(moved.info.artifact_uri.removeprefix("file://")).iterdir():
        file.unlink()
    assert text_artifacts(client, [without, with_it, moved], "table.csv") == {with_it.info.run_id: "a,b\n1,2\n"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("tmp")]
