"""Run one cell so that it ends up in the store exactly once, whatever happened to it before."""

import time

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Run

from arelu_meta.comparison.claim import Claims
from arelu_meta.comparison.grid import Cell
from arelu_meta.comparison.job import SECONDS, Job, Outcome
from arelu_meta.console import progress
from arelu_meta.errors import DivergedError, InputError, StoreError, first_line
from arelu_meta.kinds.run import run
from arelu_meta.store.connection import has_diverged, open_store
from arelu_meta.store.run_folder import RunFolder


def run_cell(job: Job, bar: progress.Bar = progress.silent) -> Outcome:
    """Run a cell, go on with it, or find it finished; an error becomes the reason of the outcome.

    The lock is for the worker of a killed runner, which may still be at it for a moment; the claim is for
    runners elsewhere.
    """
    start = time.monotonic()
    try:
        folder = RunFolder(job.cell.spec)
        folder.create()
        with FileLock(folder.path / "lock"):
            return _run_locked(job, folder, bar, start)
    except Exception as error:
        reason = first_line(error) if isinstance(error, InputError) else f"{type(error).__name__}: {first_line(error)}"
        # The store was there when the comparison began: it is away, and may come back.
        final = isinstance(error, InputError) and not isinstance(error, StoreError)
        return Outcome(job.cell, reason=reason, final=final, seconds=time.monotonic() - start)


def _run_locked(job: Job, folder: RunFolder, bar: progress.Bar, start: float) -> Outcome:
    client, experiment_id = open_store(job.execution.experiment)
    with Claims(client, experiment_id).claimed(job.cell.spec.identity, job.runner):
        earlier = runs_of(client, experiment_id, job.cell)
        ended = [found for found in earlier if found.info.status == "FINISHED" or has_diverged(found)]
        if ended:
            return Outcome(job.cell, run_id=ended[0].info.run_id, diverged=has_diverged(ended[0]))
        resumed = _resumed_run(folder, earlier)
        for found in earlier:
            if found.info.run_id != resumed:
                client.delete_run(found.info.run_id)  # cut off before its first checkpoint: nothing of it can be used
        execution = job.execution.model_copy(update={"resume": resumed is not None})
        diverged = False
        try:
            run_id = _first(client, experiment_id, job.cell, run(job.cell.spec, execution, bar=bar).run_id)
        except DivergedError:
            diverged = True
            own = runs_of(client, experiment_id, job.cell)
            run_id = next(found.info.run_id for found in own if has_diverged(found))
        seconds = time.monotonic() - start
        client.set_tag(run_id, SECONDS, f"{seconds:.3f}")
        return Outcome(job.cell, run_id=run_id, seconds=seconds, diverged=diverged)


def _first(client: MlflowClient, experiment_id: str, cell: Cell, run_id: str) -> str:
    """Give the run that finished first; where two runners met all the same, ours goes when it is the later one."""
    finished = [found for found in runs_of(client, experiment_id, cell) if found.info.status == "FINISHED"]
    first = min(finished, key=lambda found: (found.info.end_time, found.info.run_id), default=None)
    if first is None or first.info.run_id == run_id:
        return run_id
    client.delete_run(run_id)
    return str(first.info.run_id)


def runs_of(client: MlflowClient, experiment_id: str, cell: Cell) -> list[Run]:
    """Find the runs of a cell in the store, whatever became of them."""
    return list(client.search_runs([experiment_id], f"tags.spec_hash = '{cell.spec.identity}'"))


def _resumed_run(folder: RunFolder, earlier: list[Run]) -> str | None:
    """Give the run that the checkpoint belongs to, if it is one of this comparison's."""
    try:
        checkpoint = folder.load()
    except InputError:
        return None
    run_id = str(checkpoint["run_id"]) if checkpoint else None
    return run_id if run_id in {found.info.run_id for found in earlier} else None
