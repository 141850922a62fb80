"""Bring the journal of a run to the MLflow store, by a thread beside the training."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunStatus, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID

from arelu_meta.console.progress import say
from arelu_meta.errors import StoreError, first_line, without_password
from arelu_meta.store.connection import (
    DIVERGED,
    STORE_ERRORS,
    check_reachable,
    is_server,
    quiet_loggers,
)
from arelu_meta.store.journal import Entry, Journal
from arelu_meta.store.linking import link_metrics, say_unlinked

# Tags of a run: its journal, the process that runs it, and what ended it where it did not do so itself.
JOURNAL, PROCESS, ENDED_BY = "journal", "process", "ended_by"
BATCH = 500  # metrics in a request
LONGEST_PAUSE = 60.0  # seconds between two attempts
TELL_AFTER = 10.0  # seconds of waiting for the store at the end
LONGEST_REQUEST = 120.0  # seconds that a server which answers may take for one entry, such as a large model
FLUSH = "python -m arelu_meta.store flush"


def send_entry(client: MlflowClient, experiment_id: str, journal: Journal, *, again: bool) -> None:
    """Send the next entry of a journal; `again`: it may have been sent before.

    Points carry the times they were measured at: MLflow keeps equal points once.
    """
    entry = journal.next
    if entry is None:
        return
    kind, run_id = entry["kind"], journal.run_id
    if kind == "start":
        journal.run_id = _make_run(client, experiment_id, journal, entry, again=again)
    elif kind == "resume":
        _resume(client, journal, entry)
    elif kind == "params":
        client.log_batch(run_id, params=[Param(name, value) for name, value in entry["values"].items()])
    elif kind == "tags":
        client.log_batch(run_id, tags=[RunTag(name, value) for name, value in entry["values"].items()])
    elif kind == "experiment_tags":
        _describe_experiment(client, experiment_id, entry)
    elif kind == "metrics":
        points = [Metric(*point) for point in entry["points"]]
        for start in range(0, len(points), BATCH):
            client.log_batch(run_id, metrics=points[start : start + BATCH])
    elif kind == "dataset":
        tag = InputTag(MLFLOW_DATASET_CONTEXT, entry["context"])
        client.log_inputs(run_id, [DatasetInput(Dataset(**entry["dataset"]), [tag])])
    elif kind == "artifact":
        client.log_artifact(run_id, str(journal.inside(entry["file"])), entry["folder"] or None)
    elif kind == "model":
        from arelu_meta.store.models import log_saved_model  # which imports torch

        log_saved_model(client, run_id, journal.inside(entry["folder"]))
    elif kind == "child":
        _make_child(client, run_id, entry)
    else:
        finished = entry["status"] == RunStatus.to_string(RunStatus.FINISHED)
        unlinked = link_metrics(client, run_id) if finished else ""
        with no_address_printed():
            client.set_terminated(run_id, entry["status"], entry["time"])
        if unlinked:  # said by now: a store that went away would have refused the end as well, and is asked again
            say_unlinked(client, unlinked)
    journal.next_was_sent()


def _make_run(client: MlflowClient, experiment_id: str, journal: Journal, entry: Entry, *, again: bool) -> str:
    """Make the run, with the time it began, unless an earlier attempt made it; give its id."""
    if again:
        made = client.search_runs([experiment_id], f"tags.`{JOURNAL}` = '{journal.id}'", max_results=1)
        if made:
            return str(made[0].info.run_id)
    tags = {**entry["tags"], JOURNAL: journal.id, PROCESS: entry["process"]}
    run = client.create_run(experiment_id, start_time=entry["time"], tags=tags, run_name=entry["name"])
    return str(run.info.run_id)


def _resume(client: MlflowClient, journal: Journal, entry: Entry) -> None:
    """Show the run as running again, in this process."""
    tags = {**entry["tags"], JOURNAL: journal.id, PROCESS: entry["process"]}
    client.log_batch(journal.run_id, tags=[RunTag(name, value) for name, value in tags.items()])
    # Last: RUNNING with the process that is gone, it would be ended by whoever sees it.
    client.update_run(journal.run_id, RunStatus.to_string(RunStatus.RUNNING), entry["name"])
    before = client.get_run(journal.run_id).data.tags
    for name in (DIVERGED, ENDED_BY):  # it may end otherwise now
        if name in before:
            client.delete_tag(journal.run_id, name)


def _describe_experiment(client: MlflowClient, experiment_id: str, entry: Entry) -> None:
    """Set tags of the experiment; one that the store refuses is left out: no run depends on it."""
    for name, value in entry["values"].items():
        try:
            client.set_experiment_tag(experiment_id, name, value)
        except MlflowException as error:
            if error.get_http_status_code() >= 500:  # it is away, and is asked again
                raise


def _make_child(client: MlflowClient, run_id: str, entry: Entry) -> None:
    """Make a finished run below this one; one that was made and not finished is finished."""
    experiment_id = client.get_run(run_id).info.experiment_id
    below = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{run_id}' AND attributes.run_name = '{entry['name']}'"
    made = client.search_runs([experiment_id], below, max_results=1)
    tags = {**entry["tags"], MLFLOW_PARENT_RUN_ID: run_id}
    child = made[0] if made else client.create_run(experiment_id, entry["time"], tags, entry["name"])
    if child.info.status != RunStatus.to_string(RunStatus.FINISHED):
        points = [Metric(name, value, entry["time"], 0) for name, value in entry["metrics"].items()]
        client.log_batch(child.info.run_id, metrics=points)
        with no_address_printed():
            client.set_terminated(child.info.run_id, end_time=entry["time"])


@contextmanager
def no_address_printed() -> Iterator[None]:
    """Keep MLflow from printing where a run is to be seen, with the password of the address."""
    name = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"
    before = os.environ.get(name)
    os.environ[name] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class Sender(threading.Thread):
    """Sends the entries of a journal as they are written, beside the thread that trains.

    Where the store does not answer it says so once, and tries again after pauses that grow to a minute.
    """

    def __init__(self, journal: Journal, client: MlflowClient, experiment_id: str) -> None:
        super().__init__(name="sends the journal", daemon=True)
        self.trouble = ""  # what the last attempt failed of
        self._journal, self._client, self._experiment_id = journal, client, experiment_id
        self._again = journal.count > 1
        self._news, self._leaving, self._stopped = (threading.Event() for _ in range(3))
        self._ended = threading.Event()  # not `join`: interrupted, that takes a living thread for ended (Python 3.11)

    def run(self) -> None:
        """Send until nothing is left and nothing more will come."""
        try:
            with quiet_loggers():
                self._send_all()
        finally:
            self._ended.set()

    def _send_all(self) -> None:
        pause = 1.0
        while True:
            self._news.clear()  # before looking: what comes after this is news
            if self._stopped.is_set() or (self._leaving.is_set() and self._journal.next is None):
                return
            if self._journal.next is None:
                self._news.wait()
                continue
            try:
                check_reachable(self._client.tracking_uri, seconds=0.0)
                send_entry(self._client, self._experiment_id, self._journal, again=self._again)
            except STORE_ERRORS as error:
                self._failed(error)
                self._news.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause, self.trouble = 1.0, ""

    def wake(self) -> None:
        """Say that there is something new to send."""
        self._news.set()

    def begin(self) -> None:
        """Wait until the run is in the store.

        Raises:
            StoreError: the store does not take it.
        """
        while self._journal.sent == 0 or not self._journal.run_id:
            if self._ended.wait(0.01) or self.trouble:
                raise StoreError(
                    f"the MLflow store {without_password(f'{self._client.tracking_uri} does not take the run')}: "
                    f"{self.trouble}; set MLFLOW_TRACKING_URI to one that does"
                )

    def leave(self, patience: float, *, at_once: bool = False) -> bool:
        """Wait until all is sent, as long as the store takes anything.

        Args:
            patience: seconds that a store is waited for that does not answer, or refuses
            at_once: wait no longer for one that answers either: a person wants the command to end

        Returns:
            Whether all was sent.
        """
        self._leaving.set()
        start, told = time.monotonic(), False
        sent, since = self._journal.sent, start
        try:
            self._news.set()
            while not self._ended.wait(0.02):
                self._news.set()
                now = time.monotonic()
                if self._journal.sent != sent and not (at_once and is_server()):  # which may have much to catch up
                    sent, since = self._journal.sent, now
                waited = now - since  # while it took nothing; MLflow itself tries for minutes
                in_vain = at_once or self.trouble or waited > LONGEST_REQUEST
                if waited > patience and (in_vain or not self._answers()):
                    break
                if now - start > TELL_AFTER and not told:
                    told = True
                    say(f"the MLflow store has not taken all of the run yet; Ctrl-C leaves the rest to {FLUSH}")
        finally:
            self.stop()
            self._ended.wait(0.1 if at_once else 0.5)  # for the attempt under way: another may send what is left
        return self._journal.next is None

    def stop(self) -> None:
        """End as soon as the attempt under way has ended."""
        self._stopped.set()
        self._news.set()

    def _answers(self) -> bool:
        try:
            check_reachable(self._client.tracking_uri, seconds=0.0)
        except ConnectionError:
            return False
        return True

    def _failed(self, error: Exception) -> None:
        self._again = True
        reason = first_line(error)[:200] if self._answers() else "no server is there"
        if not self.trouble and self._journal.sent:
            store = without_password(self._client.tracking_uri)
            say(f"the MLflow store {store} does not take the run ({reason}); it goes on, kept in {self._journal.path}")
        self.trouble = reason
