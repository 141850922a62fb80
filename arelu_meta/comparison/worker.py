"""What a worker does: run one cell so that it ends up in the store exactly once, whatever happened to it before.

Importing this loads no torch: the runner needs the types alone, its workers load torch when they run their first cell.
"""

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from arelu_meta.comparison.cells import Cell
from arelu_meta.console import progress
from arelu_meta.console.command_line import arguments_as_flags
from arelu_meta.errors import DivergedError, InputError, RunError, StoreError, first_line
from arelu_meta.kinds.execution import MOST_THREADS, Execution

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from arelu_meta.store.run_folder import RunFolder

MOST_FAILURES = 2  # of a cell: it is retried once, then reported
MOST_DEATHS = 4  # of workers that had the cell
CLOSING_SECONDS = 30.0  # that a worker has to close its run when the runner is interrupted
SECONDS_TAG = "comparison.seconds"  # of a cell's run: how long its worker took
WAITING = "it ended, and waits in its folder for the MLflow store; the same command again takes it in"
FOLDER_TAG = "comparison.folder"  # of a cell's run: the id of the run folder it was started in


@dataclass(frozen=True)
class Job:
    """A cell to run, and how."""

    cell: Cell
    execution: Execution
    folder: Path | None = None
    """of the comparison: where it is gone, nothing is begun; None: the worker's machine may never have had it"""

    def on_device(self, device: str) -> "Job":
        """Give the same job on another device."""
        return replace(self, execution=self.execution.model_copy(update={"device": device}))


@dataclass(frozen=True)
class CellOutcome:
    """How a cell ended: with a run in the store, or with the reason why not."""

    cell: Cell
    run_id: str = ""
    reason: str = ""
    seconds: float = 0.0
    final: bool = False
    """a retry would fail in the same way, as with wrong input"""
    diverged: bool = False
    """its loss was no longer finite, which is its result"""
    died: bool = False
    """its worker died while running it"""

    @property
    def has_result(self) -> bool:
        """Whether the store holds its result."""
        return not self.reason


class Retries:
    """Counts failures by cell, and decides whether a cell is retried."""

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()
        self._deaths: Counter[str] = Counter()

    def allow(self, outcome: CellOutcome) -> bool:
        """Count a failure, and tell whether the cell is to be retried."""
        counts, most = (self._deaths, MOST_DEATHS) if outcome.died else (self._failures, MOST_FAILURES)
        counts[outcome.cell.identity] += 1
        return not outcome.final and counts[outcome.cell.identity] < most


def check_workers(workers: int, threads: int) -> None:
    """Refuse numbers of workers and threads that are out of range."""
    if workers < 1:
        raise InputError(f"`workers` {workers} must be at least 1")
    if not 0 <= threads <= MOST_THREADS:
        raise InputError(f"`threads` {threads} must be at least 0 and at most {MOST_THREADS}")


def thread_variables(threads: int) -> dict[str, str]:
    """Variables by which numerical libraries take so many threads; they read them once, when they are loaded."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_cell(job: Job, bar: progress.Bar = progress.silent) -> CellOutcome:
    """Run a cell, resume it, or find it finished; an error becomes the reason of the outcome.

    The lock of its folder keeps out other workers with the same folder: of another shard, or of a runner that was
    killed a moment ago. Workers with other folders may run the same cell; then the run that finished first counts.
    """
    from arelu_meta.store.journal import runs_folder
    from arelu_meta.store.run_folder import RunFolder

    start = time.monotonic()
    if job.folder is not None and not job.folder.exists():
        return CellOutcome(job.cell, reason=f"{job.folder} was deleted or renamed", final=True)
    try:
        folder = RunFolder(job.cell.spec)
        folder.create()
        with folder.locked(wait=True):
            return _run_locked(job, folder, bar, start)
    except Exception as error:
        reason = arguments_as_flags(first_line(error))  # settings of a cell are keys of a file, no flags
        if not isinstance(error, InputError):
            reason = f"{type(error).__name__}: {reason}"
        # The store was there when the comparison began: it may come back.
        final = isinstance(error, InputError) and not isinstance(error, StoreError)
        # Deleted or renamed while the cell ran, as its run folder was made in it: a retry would make an empty one.
        final = final or not runs_folder().exists()
        return CellOutcome(job.cell, reason=reason, final=final, seconds=time.monotonic() - start)


def _run_locked(job: Job, folder: "RunFolder", bar: progress.Bar, start: float) -> CellOutcome:
    from arelu_meta.comparison.parent_run import ended_runs
    from arelu_meta.kinds import run
    from arelu_meta.store.connection import has_diverged, open_store

    try:
        client, experiment_id = open_store(job.execution.experiment, wait=0.0)
    except StoreError:  # it was there when the comparison began, and need not be: nothing is lost by going on
        return _run_offline(job, folder, bar, start)
    of_this_cell = f"tags.spec_hash = '{job.cell.identity}'"
    ended = ended_runs(client, experiment_id, of_this_cell)
    if ended:
        return CellOutcome(job.cell, run_id=ended[0].info.run_id, diverged=has_diverged(ended[0]))
    folder_id = _folder_id(folder)
    resumed = _resumable(client, folder, folder_id, client.search_runs([experiment_id], of_this_cell))
    tags = {**job.execution.tags, FOLDER_TAG: folder_id}
    execution = job.execution.model_copy(update={"resume": resumed is not None, "tags": tags})
    with suppress(DivergedError):  # the store holds its run, marked as diverged
        run(job.cell.spec, execution, bar=bar)
    seconds = time.monotonic() - start
    if any(folder.finished_journals()):
        return CellOutcome(job.cell, reason=WAITING, seconds=seconds, final=True)
    ended = ended_runs(client, experiment_id, of_this_cell)
    if not ended:
        raise RunError("its run is no longer in the store")
    first = ended[0]
    for own in client.search_runs([experiment_id], f"{of_this_cell} AND tags.`{FOLDER_TAG}` = '{folder_id}'"):
        if own.info.run_id == first.info.run_id:
            client.set_tag(own.info.run_id, SECONDS_TAG, f"{seconds:.3f}")
        else:  # a worker with another folder was faster
            client.delete_run(own.info.run_id)
    return CellOutcome(job.cell, run_id=first.info.run_id, seconds=seconds, diverged=has_diverged(first))


def _run_offline(job: Job, folder: "RunFolder", bar: progress.Bar, start: float) -> CellOutcome:
    """Run or resume a cell while the store does not answer; its result waits in its folder."""
    from arelu_meta.kinds import run

    if not folder.finished_journals() and not folder.was_sent(folder.load()):
        update = {"resume": True, "offline": True, "tags": {**job.execution.tags, FOLDER_TAG: _folder_id(folder)}}
        with suppress(DivergedError):
            run(job.cell.spec, job.execution.model_copy(update=update), bar=bar)
    return CellOutcome(job.cell, reason=WAITING, seconds=time.monotonic() - start, final=True)


def _folder_id(folder: "RunFolder") -> str:
    """Give what tells runs that were started in this folder from those of others."""
    path = folder.path / "folder_id"
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text(uuid.uuid4().hex)
        partial.replace(path)  # whole or not at all
    return path.read_text()


def _resumable(client: "MlflowClient", folder: "RunFolder", folder_id: str, earlier: "list[Run]") -> str | None:
    """Give the run that the checkpoint belongs to, if it is in the store; delete runs that cannot be resumed.

    A checkpoint that is there and cannot be read is an error, and nothing is deleted: it may be readable again. A run
    that another folder started and that is still open is left alone, as its worker may be alive.
    """
    checkpoint = folder.load()
    run_ids = {run.info.run_id for run in earlier}
    resumed = str(checkpoint["run_id"]) if checkpoint and checkpoint["run_id"] in run_ids else None
    for run in earlier:
        own = run.data.tags.get(FOLDER_TAG) == folder_id
        if run.info.run_id != resumed and (own or run.info.status != "RUNNING"):
            folder.remove_journal(run.info.run_id)
            client.delete_run(run.info.run_id)
    return resumed
