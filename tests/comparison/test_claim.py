import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from mlflow import MlflowClient

from arelu_meta.comparison import cell_run, claim, grid
from arelu_meta.comparison.cell_run import run_cell, runs_of
from arelu_meta.comparison.claim import Claims
from arelu_meta.comparison.job import Job
from arelu_meta.errors import InputError, StoreError
from arelu_meta.kinds.execution import Execution
from arelu_meta.store import connection
from arelu_meta.store.connection import open_store
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
CELL, KEY = "0123456789abcdef-and-more", "claim.0123456789abcdef"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "SETTLED", 0.0)


@pytest.fixture
def experiment(store_uri: str) -> tuple[MlflowClient, str]:
    """The experiment of a comparison."""
    assert connection.store_uri() == store_uri
    return open_store("mine")


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def a_claim(**changes: object) -> str:
    values = {"runner": "other", "host": socket.gethostname(), "pid": os.getpid(), "renewed": time.time(), "token": "t"}
    return json.dumps({**values, **changes})


def tag_of(experiment: tuple[MlflowClient, str]) -> str | None:
    client, experiment_id = experiment
    return client.get_experiment(experiment_id).tags.get(KEY)


def test_held_while_it_lasts_also_when_it_fails(experiment: tuple[MlflowClient, str]):
    def training() -> None:
        holder = json.loads(tag_of(experiment) or "")
        assert (holder["runner"], holder["host"], holder["pid"]) == ("mine", socket.gethostname(), os.getpid())
        raise ValueError("training broke")

    with pytest.raises(ValueError, match="training broke"), Claims(*experiment).claimed(CELL, "mine"):
        training()
    assert tag_of(experiment) is None


def test_what_a_runner_still_has(experiment: tuple[MlflowClient, str]):
    """Its own claims that someone is at; neither others' nor those of a process that is gone."""
    client, experiment_id = experiment
    claims = Claims(*experiment)
    client.set_experiment_tag(experiment_id, "claim.of-another", a_claim())
    client.set_experiment_tag(experiment_id, "claim.of-a-dead-process", a_claim(runner="mine", pid=ended_process()))
    client.set_experiment_tag(experiment_id, "claim.that-is-none", "{")
    assert not claims.any_of("mine")
    with claims.claimed(CELL, "mine"):
        assert claims.any_of("mine")
    assert not claims.any_of("mine")


def test_renewed(experiment: tuple[MlflowClient, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claim, "EVERY", 0.01)
    with Claims(*experiment).claimed(CELL, "mine"):
        first = tag_of(experiment)
        deadline = time.monotonic() + 30
        while tag_of(experiment) == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_one_that_was_lost_stays_with_its_new_holder(
    experiment: tuple[MlflowClient, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(claim, "EVERY", 0.01)
    client, experiment_id = experiment
    theirs = a_claim()
    with Claims(*experiment).claimed(CELL, "mine"):
        client.set_experiment_tag(experiment_id, KEY, theirs)
        time.sleep(0.2)
        assert tag_of(experiment) == theirs
    assert tag_of(experiment) == theirs


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"])
def test_refused_while_another_is_at_it(experiment: tuple[MlflowClient, str], host: str):
    client, experiment_id = experiment
    held = a_claim(host=host)
    client.set_experiment_tag(experiment_id, KEY, held)
    line = rf"^another runner is at it \(process {os.getpid()} on {host}\); run the comparison again when it has ended$"
    with pytest.raises(InputError, match=line), Claims(*experiment).claimed(CELL, "mine"):
        pytest.fail("it was given to two")
    assert tag_of(experiment) == held


def test_of_two_at_the_same_moment_one_has_it(experiment: tuple[MlflowClient, str], monkeypatch: pytest.MonkeyPatch):
    """Both have found it free before either has written."""
    theirs = a_claim()
    write = Claims._write

    def both(self: Claims, cell: str, runner: str, token: str) -> None:
        write(self, cell, runner, token)
        experiment[0].set_experiment_tag(experiment[1], KEY, theirs)

    monkeypatch.setattr(Claims, "_write", both)
    with pytest.raises(InputError, match="another runner"), Claims(*experiment).claimed(CELL, "mine"):
        pytest.fail("it was given to two")
    assert tag_of(experiment) == theirs


@pytest.mark.parametrize(
    "held",
    [
        lambda: a_claim(runner="mine"),
        lambda: a_claim(pid=ended_process()),
        lambda: a_claim(host="elsewhere", renewed=time.time() - claim.VALID - 1),
        lambda: a_claim(pid="x"),
        lambda: "not a claim",
        lambda: "[]",
    ],
    ids=["one's own", "process gone", "not renewed", "no number", "no claim", "no claim either"],
)
def test_nobodys_is_taken(experiment: tuple[MlflowClient, str], held: Callable[[], str]):
    client, experiment_id = experiment
    client.set_experiment_tag(experiment_id, KEY, held())
    with Claims(*experiment).claimed(CELL, "mine"):
        assert json.loads(tag_of(experiment) or "")["runner"] == "mine"
    assert tag_of(experiment) is None


def test_a_cell_that_another_runner_is_at_is_left_alone(experiment: tuple[MlflowClient, str], tiny_spec):
    """Its open run was taken for a dead one's, and deleted under it."""
    client, experiment_id = experiment
    cell = grid.Cell({"activation": "arelu"}, tiny_spec())
    client.set_experiment_tag(experiment_id, f"claim.{cell.spec.identity[:16]}", a_claim(host="elsewhere"))
    client.create_run(experiment_id, tags={"spec_hash": cell.spec.identity})
    outcome = run_cell(Job(cell, Execution(experiment="mine"), "mine"))
    assert not outcome.finished
    assert outcome.final
    assert outcome.reason.startswith("another runner is at it")
    assert [run.info.status for run in runs_of(client, experiment_id, cell)] == ["RUNNING"]


def test_of_two_that_finished_the_later_run_goes(experiment: tuple[MlflowClient, str], tiny_spec):
    """A write that took longer than a claim takes to settle: both ran the cell to its end."""
    client, experiment_id = experiment
    cell = grid.Cell({"activation": "arelu"}, tiny_spec())
    first, late = (
        client.create_run(experiment_id, tags={"spec_hash": cell.spec.identity}).info.run_id for _ in range(2)
    )
    client.set_terminated(first, end_time=10)
    assert cell_run._first(client, experiment_id, cell, first) == first
    client.set_terminated(late, end_time=20)
    assert cell_run._first(client, experiment_id, cell, late) == first
    assert [run.info.run_id for run in runs_of(client, experiment_id, cell)] == [first]


@pytest.mark.usefixtures("store_uri")
@pytest.mark.parametrize("when", ["cell_run.open_store", "cell_run.run"])
def test_a_store_that_is_away_for_a_moment_is_tried_again(monkeypatch: pytest.MonkeyPatch, tiny_spec, when: str):
    """At the start of a comparison it is wrong input; in its middle, also when a run opens it, it may come back."""

    def away(*_: object, **__: object) -> None:
        raise StoreError("cannot use the MLflow store")

    monkeypatch.setattr(f"arelu_meta.comparison.{when}", away)
    outcome = run_cell(Job(grid.Cell({"activation": "arelu"}, tiny_spec()), Execution(experiment="mine"), "mine"))
    assert (outcome.reason, outcome.final) == ("cannot use the MLflow store", False)
