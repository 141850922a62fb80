import json
import os
import socket
import subprocess
import sys
import time

import pytest
from mlflow import MlflowClient

from arelu_meta import tracking
from arelu_meta.comparison import claim, grid
from arelu_meta.comparison.cell_run import run_cell, runs_of
from arelu_meta.comparison.claim import claimed
from arelu_meta.comparison.job import Job
from arelu_meta.errors import InputError
from arelu_meta.spec import Execution
from arelu_meta.tracking import open_store
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
CELL, KEY = "0123456789abcdef", "claim.0123456789ab"


@pytest.fixture
def record(store_uri: str) -> tuple[MlflowClient, str]:
    """The run of a comparison."""
    assert tracking.store_uri() == store_uri
    client, experiment_id = open_store("mine")
    return client, client.create_run(experiment_id).info.run_id


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def a_claim(**changes: object) -> str:
    values = {"runner": "other", "host": socket.gethostname(), "pid": os.getpid(), "renewed": time.time()}
    return json.dumps({**values, **changes})


def tag_of(record: tuple[MlflowClient, str], key: str = KEY) -> str | None:
    client, run_id = record
    return client.get_run(run_id).data.tags.get(key)


def test_held_while_it_lasts_also_when_it_fails(record: tuple[MlflowClient, str]):
    def training() -> None:
        holder = json.loads(tag_of(record) or "")
        assert (holder["runner"], holder["host"], holder["pid"]) == ("mine", socket.gethostname(), os.getpid())
        raise ValueError("training broke")

    with pytest.raises(ValueError, match="training broke"), claimed(*record, CELL, "mine"):
        training()
    assert tag_of(record) is None


def test_renewed(record: tuple[MlflowClient, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claim, "EVERY", 0.01)
    with claimed(*record, CELL, "mine"):
        first = tag_of(record)
        deadline = time.monotonic() + 30
        while tag_of(record) == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"])
def test_refused_while_another_is_at_it(record: tuple[MlflowClient, str], host: str):
    client, run_id = record
    held = a_claim(host=host)
    client.set_tag(run_id, KEY, held)
    line = rf"^another runner is at it \(process {os.getpid()} on {host}\); run the comparison again when it has ended$"
    with pytest.raises(InputError, match=line), claimed(*record, CELL, "mine"):
        pytest.fail("it was given to two")
    assert tag_of(record) == held


@pytest.mark.parametrize(
    "held",
    [
        a_claim(runner="mine"),
        a_claim(pid=ended_process()),
        a_claim(host="elsewhere", renewed=time.time() - claim.VALID - 1),
        "not a claim",
        "[]",
    ],
    ids=["one's own", "process gone", "not renewed", "no claim", "no claim either"],
)
def test_nobodys_is_taken(record: tuple[MlflowClient, str], held: str):
    client, run_id = record
    client.set_tag(run_id, KEY, held)
    with claimed(*record, CELL, "mine"):
        assert json.loads(tag_of(record) or "")["runner"] == "mine"
    assert tag_of(record) is None


def test_a_cell_that_another_runner_is_at_is_left_alone(record: tuple[MlflowClient, str], tiny_spec):
    """Its open run was taken for a dead one's, and deleted under it."""
    client, run_id = record
    cell = grid.Cell({"activation": "arelu"}, tiny_spec())
    client.set_tag(run_id, f"claim.{cell.spec.identity[:12]}", a_claim(host="elsewhere"))
    experiment_id = client.get_run(run_id).info.experiment_id
    client.create_run(experiment_id, tags={"spec_hash": cell.spec.identity})
    outcome = run_cell(Job(cell, Execution(experiment="mine"), run_id, "mine"))
    assert not outcome.finished
    assert outcome.final
    assert outcome.reason.startswith("another runner is at it")
    assert [run.info.status for run in runs_of(client, experiment_id, cell)] == ["RUNNING"]
