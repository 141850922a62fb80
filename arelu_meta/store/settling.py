"""What runs left behind: journals that wait for the MLflow store, and runs whose process is gone."""

from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import RunStatus

from arelu_meta.console.progress import say
from arelu_meta.errors import InputError, first_line, without_password
from arelu_meta.runtime.machine import has_ended
from arelu_meta.store.connection import STORE_ERRORS, check_reachable, open_store, quiet, run_status
from arelu_meta.store.histories import run_pages
from arelu_meta.store.journal import Journal, runs_folder, waiting_journals
from arelu_meta.store.sending import ENDED_BY, PROCESS, no_address_printed, send_entry
from arelu_meta.store.sources import store_uri

GONE = "its process was gone"


def settle_runs(experiment: str) -> None:
    """Bring to the store what earlier runs of this folder left; end runs of an experiment whose process is gone.

    Raises:
        StoreError: the store cannot be used.
    """
    client, experiment_id = open_store(experiment)
    sent, left = flush(runs_folder())
    if sent:
        say(f"{sent} earlier {'run was' if sent == 1 else 'runs were'} brought to the MLflow store")
    for line in left:
        say(f"not brought to the MLflow store: {line}")
    close_stale(client, experiment_id)


def close_stale(client: MlflowClient, experiment_id: str, *, host: str | None = None) -> list[str]:
    """End the runs of an experiment as FAILED whose process is gone.

    Args:
        client: the store
        experiment_id: the MLflow experiment
        host: a machine whose processes have all ended, as the caller knows; None: this one's are looked for

    Returns:
        The ids of the runs that were ended.
    """
    closed = []
    for run in run_pages(client, [experiment_id], "attributes.status = 'RUNNING'"):
        # Asked again when its process is seen to be gone: it may have ended as it should since the search.
        process = run.data.tags.get(PROCESS, "")
        gone = has_ended(process) if host is None else process.partition(":")[0] == host
        if gone and run_status(client, run.info.run_id) == RunStatus.to_string(RunStatus.RUNNING):
            client.set_tag(run.info.run_id, ENDED_BY, GONE)
            with no_address_printed():
                client.set_terminated(run.info.run_id, "FAILED")
            closed.append(str(run.info.run_id))
    return closed


def flush(runs: Path) -> tuple[int, list[str]]:
    """Send what is waiting in the journals below a folder of runs.

    A run whose process is gone without having ended it is ended as FAILED.

    Args:
        runs: the folder of run folders

    Returns:
        How many journals were sent, and a line for each that could not be.
    """
    sent, left = 0, []
    for path in waiting_journals(runs):
        try:
            journal = Journal.open(path)
            if not journal.hold():
                continue
            try:
                _flush_one(journal)
            finally:
                journal.release()
        except (*STORE_ERRORS, InputError) as error:
            left.append(f"{path}: {first_line(error)}")
        else:
            sent += 1
    return sent, left


def _flush_one(journal: Journal) -> None:
    uri = store_uri()
    if journal.store != without_password(uri):
        raise InputError(f"it is for the store {journal.store}; set MLFLOW_TRACKING_URI to that")
    check_reachable(uri, seconds=0.0)
    client, experiment_id = open_store(journal.experiment)
    if journal.run_id and run_status(client, journal.run_id) is None:
        raise InputError(f"run {journal.run_id} is not in the store {journal.store}; resume it, or delete the journal")
    if not journal.status:
        journal.append("tags", values={ENDED_BY: GONE})
        journal.append("end", status="FAILED", time=journal.last_written)
    with quiet():
        while journal.next is not None:
            send_entry(client, experiment_id, journal, again=True)
    if journal.status == "FINISHED":
        journal.remove()
