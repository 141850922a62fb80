"""What becomes of a cell: found, resumed or run, once in the store whoever else ran it."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from arelu_meta.comparison.cells import Cell
from arelu_meta.comparison.worker import (
    FOLDER_TAG,
    MOST_DEATHS,
    MOST_FAILURES,
    WAITING,
    CellOutcome,
    Job,
    Retries,
    environment,
    run_cell,
    thread_variables,
)
from arelu_meta.errors import DivergedError, InputError, RunError, StoreError
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.store import connection, sources
from arelu_meta.store.journal import Journal, runs_folder
from arelu_meta.store.run_folder import RunFolder
from arelu_meta.store.settling import flush
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
Made = Callable[..., FewShotSpec]


@pytest.fixture
def job(tiny_spec: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    return Job(Cell({"activation": "arelu"}, tiny_spec()), Execution(experiment="mine"))


class Store:
    """The experiment of a comparison, and runs in it as workers leave them."""

    def __init__(self) -> None:
        self.client, self.experiment_id = connection.open_store("mine")

    def add(self, job: Job, status: str | None = None, end: int = 10, **tags: str) -> str:
        """A run of the job's cell that ended with a status, or is still open."""
        given = {"spec_hash": job.cell.spec.identity, **tags}
        run_id = str(self.client.create_run(self.experiment_id, tags=given).info.run_id)
        if status:
            self.client.set_terminated(run_id, status, end_time=end)
        return run_id

    def statuses(self) -> dict[str, str]:
        """Status by run id of all runs that are not deleted."""
        return {run.info.run_id: run.info.status for run in self.client.search_runs([self.experiment_id])}


@pytest.fixture
def runs(store_uri: str) -> Store:
    assert sources.store_uri() == store_uri
    return Store()


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, runs: Store) -> list[Execution]:
    """Replace training by a run that finishes; gives how it was called."""
    calls: list[Execution] = []

    def run(spec: FewShotSpec, execution: Execution, **_bar: object) -> None:
        calls.append(execution)
        tags = {"spec_hash": spec.identity, **execution.tags}
        run_id = runs.client.create_run(runs.experiment_id, tags=tags).info.run_id
        runs.client.set_terminated(run_id, end_time=20)

    monkeypatch.setattr("arelu_meta.kinds.run", run)
    return calls


def test_a_cell_is_run_once_and_then_found(job: Job, runs: Store, training: list[Execution]):
    first, again = run_cell(job), run_cell(job)
    assert first.has_result
    assert again.run_id == first.run_id
    assert runs.statuses() == {first.run_id: "FINISHED"}
    assert len(training) == 1


def test_of_two_runs_of_a_cell_the_one_that_finished_first_counts(
    job: Job, runs: Store, monkeypatch: pytest.MonkeyPatch
):
    """Workers with two folders run the same cell; theirs ends while ours is at it, so ours goes."""
    theirs = runs.add(job)

    def run(_spec: FewShotSpec, execution: Execution, **_bar: object) -> None:
        runs.client.set_terminated(theirs, end_time=10)
        runs.add(job, "FINISHED", end=20, **execution.tags)

    monkeypatch.setattr("arelu_meta.kinds.run", run)
    assert run_cell(job).run_id == theirs
    assert runs.statuses() == {theirs: "FINISHED"}


def test_a_run_that_another_folder_has_open_is_left_alone(job: Job, runs: Store, training: list[Execution]):
    """Its worker may be alive. What has ended without a result can be deleted; what our own folder left open, too.

    With its journal, which otherwise would wait for ever to be brought to a run that is gone.
    """
    alive = runs.add(job, **{FOLDER_TAG: "another"})
    runs.add(job, "KILLED", **{FOLDER_TAG: "another"})
    (RunFolder(job.cell.spec).path).mkdir(parents=True)
    (RunFolder(job.cell.spec).path / "folder_id").write_text("ours")
    ours = runs.add(job, **{FOLDER_TAG: "ours"})
    start = {"experiment": "mine", "name": "a run", "tags": {}}
    Journal.create(RunFolder(job.cell.spec).path, "", run_id=ours, **start).release()
    outcome = run_cell(job)
    assert list(runs_folder().glob("*/journal/*")) == []
    assert runs.statuses() == {alive: "RUNNING", outcome.run_id: "FINISHED"}
    assert [execution.resume for execution in training] == [False]


def test_the_run_of_the_checkpoint_is_resumed(job: Job, runs: Store, training: list[Execution]):
    earlier = runs.add(job, "KILLED")
    folder = RunFolder(job.cell.spec)
    folder.create()
    folder.save({"run_id": earlier})
    run_cell(job)
    assert [execution.resume for execution in training] == [True]
    assert earlier in runs.statuses()


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), MemoryError(), OSError(116, "stale")])
def test_a_checkpoint_that_cannot_be_read_deletes_nothing(
    job: Job, runs: Store, training: list[Execution], monkeypatch: pytest.MonkeyPatch, error: BaseException
):
    """It may be readable at the next try, and then the run goes on from it."""
    earlier = runs.add(job, "KILLED")
    folder = RunFolder(job.cell.spec)
    folder.create()
    folder.save({"run_id": earlier})

    def load(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("torch.load", load)
        outcome = run_cell(job)
    assert not outcome.has_result
    assert runs.statuses() == {earlier: "KILLED"}
    assert training == []
    assert run_cell(job).has_result
    assert [execution.resume for execution in training] == [True]


def test_a_diverged_run_is_a_result_and_found_again(job: Job, runs: Store, monkeypatch: pytest.MonkeyPatch):
    def run(_spec: FewShotSpec, execution: Execution, **_bar: object) -> None:
        runs.add(job, "FAILED", **{**execution.tags, connection.DIVERGED: "the loss is nan"})
        raise DivergedError("the loss is nan")

    monkeypatch.setattr("arelu_meta.kinds.run", run)
    first, again = run_cell(job), run_cell(job)
    assert first.has_result
    assert first.diverged
    assert (again.run_id, again.diverged) == (first.run_id, True)
    assert runs.statuses() == {first.run_id: "FAILED"}


def away(*_: object, **__: object) -> None:
    raise StoreError("cannot use the MLflow store")


@pytest.mark.usefixtures("store_uri")
def test_a_store_that_goes_away_when_a_run_opens_it_is_retried(monkeypatch: pytest.MonkeyPatch, job: Job):
    """At the start of a comparison it is wrong input; in its middle it may come back."""
    monkeypatch.setattr("arelu_meta.kinds.run", away)
    outcome = run_cell(job)
    assert (outcome.reason, outcome.final) == ("cannot use the MLflow store", False)


def test_a_cell_that_finished_before_the_store_went_away_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch, job: Job, training: list[Execution]
):
    """All of it was sent, so its journal is gone; only its worker could not ask whether the run is there."""
    monkeypatch.setattr("arelu_meta.store.connection.open_store", away)
    folder = RunFolder(job.cell.spec)
    folder.create()
    folder.save({"run_id": "run", "journal": "sent"})
    outcome = run_cell(job)
    assert (outcome.reason, outcome.final, training) == (WAITING, True, [])


def test_a_cell_begun_while_the_store_is_away_waits_in_its_folder(
    monkeypatch: pytest.MonkeyPatch, store: Path, statuses: Callable, job: Job
):
    """It is run once, not again while it waits, and counts as soon as it was brought to the store."""
    with monkeypatch.context() as patched:
        patched.setattr("arelu_meta.store.connection.open_store", away)
        first, again = run_cell(job), run_cell(job)
    assert (first.reason, first.final) == (again.reason, again.final) == (WAITING, True)
    assert statuses(store) == []
    assert flush(runs_folder()) == (1, [])
    monkeypatch.setattr("arelu_meta.kinds.run", away)  # it is not run again
    outcome = run_cell(job)
    assert outcome.has_result
    assert statuses(store) == ["FINISHED"]
    tags = MlflowClient().get_run(outcome.run_id).data.tags
    assert FOLDER_TAG in tags


def test_a_server_that_is_away_holds_up_no_cell(monkeypatch: pytest.MonkeyPatch, job: Job, training: list[Execution]):
    """It is asked once, not for as long as one takes that is being restarted: the journal takes the run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(connection.time, "sleep", lambda _seconds: pytest.fail("it waits"))
    assert run_cell(job).reason == WAITING
    assert [execution.offline for execution in training] == [True]


@pytest.mark.usefixtures("store_uri")
def test_a_reason_names_settings_as_the_file_does(monkeypatch: pytest.MonkeyPatch, job: Job):
    """Settings of a cell are keys of its experiment's file; the command has no such flags."""

    def refuse(*_: object, **__: object) -> None:
        raise InputError("lower `inner_lr`")

    monkeypatch.setattr("arelu_meta.store.connection.open_store", refuse)
    outcome = run_cell(job)
    assert (outcome.reason, outcome.final) == ("lower inner_lr", True)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.usefixtures("store_uri")
def test_a_cell_is_not_retried_where_the_folder_of_all_runs_is_gone(
    monkeypatch: pytest.MonkeyPatch, job: Job, kept: bool
):
    """A retry would make an empty one and begin anew there; where only its own folder is gone, that is right."""

    def delete(*_: object, **__: object) -> None:
        shutil.rmtree(RunFolder(job.cell.spec).path if kept else runs_folder())
        raise RunError("cannot write the checkpoint")

    monkeypatch.setattr("arelu_meta.kinds.run", delete)
    outcome = run_cell(job)
    assert (outcome.reason, outcome.final) == ("RunError: cannot write the checkpoint", not kept)


def test_retries(tiny_spec: Made):
    """A failure is retried once, a death three times, wrong input never; each cell on its own account."""
    retries = Retries()
    one, other = (Cell({"activation": arm}, tiny_spec(network={"activation": arm})) for arm in ("relu", "arelu"))
    failed, died = CellOutcome(one, reason="x"), CellOutcome(one, reason="x", died=True)
    assert [retries.allow(failed) for _ in range(2)] == [True, False]
    assert [retries.allow(died) for _ in range(4)] == [True, True, True, False]
    assert (MOST_FAILURES, MOST_DEATHS) == (2, 4)
    assert not retries.allow(CellOutcome(other, reason="wrong", final=True))


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with environment(thread_variables(7)):
        assert os.environ["MKL_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "7"
        tell = [sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"]
        assert subprocess.run(tell, capture_output=True, text=True, check=True).stdout == "7\n"
    assert dict(os.environ) == before
