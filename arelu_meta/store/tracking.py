"""Open a run and close it: what it was given, and an honest end state."""

import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from mlflow import MlflowClient
from mlflow.tracking.context.registry import resolve_tags

from arelu_meta import __version__
from arelu_meta.errors import DivergedError, InputError, StoreError, without_password
from arelu_meta.runtime.machine import process_name, processor_name
from arelu_meta.store.connection import DIVERGED, RunSpec, open_store, run_status
from arelu_meta.store.journal import SENT, Journal
from arelu_meta.store.run_folder import RunFolder
from arelu_meta.store.sending import Sender
from arelu_meta.store.sources import store_uri
from arelu_meta.store.tracker import Tracker

LONGEST_SENDING = 60.0  # seconds that another process may take to send what a resumed run recorded before


@contextmanager
def track(
    spec: RunSpec,
    *,
    experiment: str,
    name: str,
    tags: Mapping[str, str],
    resumed: Mapping[str, Any] | None = None,
    offline: bool = False,
) -> Iterator[Tracker]:
    """Open the run of a spec with its settings as parameters, and `spec.json`; see `open_run`."""
    common = {
        "spec_hash": spec.identity,
        "arelu_meta": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "git_commit": _git_commit(),
        "machine": processor_name(),
    }
    # The summary is no part of the identity: edited meanwhile, it would be another value of a fixed parameter.
    settings = {key: value for key, value in spec.flat().items() if value not in ({}, "") and key != "summary"}
    with open_run(
        experiment,
        name=name,
        tags={**common, **tags},
        params=settings,
        artifacts={"spec.json": spec.model_dump(mode="json")},
        folder=RunFolder.path_of(spec.task, spec.identity),
        resumed=resumed,
        offline=offline,
    ) as tracker:
        yield tracker


@contextmanager
def open_run(
    experiment: str,
    *,
    name: str,
    tags: Mapping[str, str],
    params: Mapping[str, Any] | None = None,
    artifacts: Mapping[str, dict[str, Any]] | None = None,
    folder: Path | None = None,
    resumed: Mapping[str, Any] | None = None,
    offline: bool = False,
) -> Iterator[Tracker]:
    """Open a run, or a resumed one again, and close it as FINISHED, FAILED (an error) or KILLED (an interruption).

    Args:
        experiment: the MLflow experiment
        name: the name of the run
        tags: its tags
        params: its parameters
        artifacts: plain values to store as JSON, by path
        folder: the run folder, which takes the journal; without one, a folder named after the experiment
        resumed: `Tracker.position` as the checkpoint has it, to go on with that run
        offline: write the journal alone

    Raises:
        StoreError: the store does not answer, or refuses the run.
    """
    client, experiment_id = (None, "") if offline else open_store(experiment)
    start = {"experiment": experiment, "name": name, "tags": resolve_tags(dict(tags))}
    folder = folder or RunFolder.path_of(experiment, "journal")
    journal, repeated = _open_journal(folder, client, resumed, start)
    sender = None if client is None else Sender(journal, client, experiment_id)
    tracker = Tracker(journal, sender, experiment_id=experiment_id, repeated=repeated)
    if sender is not None:
        _begin(sender, tracker, journal, new=not resumed)
    status = "FAILED"
    try:
        if params:
            tracker.log_params(params)
        for path, content in (artifacts or {}).items():
            tracker.log_dict(content, path)
        yield tracker
        status = "FINISHED"
    except DivergedError as error:
        tracker.set_tags({DIVERGED: str(error)})
        raise
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        tracker.end(status)


def _begin(sender: Sender, tracker: Tracker, journal: Journal, *, new: bool) -> None:
    """Wait until the store has the run; where it refuses it, or the wait is interrupted, the run is over."""
    try:
        sender.start()
        sender.begin()
    except StoreError:
        sender.stop()
        if new:
            journal.remove()
        journal.release()
        raise
    except KeyboardInterrupt:
        tracker.end("KILLED")
        raise


def _held_journal(path: Path) -> Journal | None:
    """Take a journal over; None where there is none, or all of it was sent meanwhile.

    The folder of the run is ours, so that who holds the journal only sends what is in it, and is waited for.
    """
    end = time.monotonic() + LONGEST_SENDING
    while (path / SENT).exists():
        try:
            journal = Journal.open(path)
        except InputError:
            if (path / SENT).exists():
                raise
            return None  # removed while it was read
        if journal.hold():
            return journal
        if time.monotonic() > end:
            raise InputError(f"{path} is sent by another process ({journal.process}); wait until that has ended")
        time.sleep(0.05)
    return None


def _open_journal(
    folder: Path, client: MlflowClient | None, resumed: Mapping[str, Any] | None, start: dict[str, Any]
) -> tuple[Journal, set[tuple[str, int]]]:
    """Begin a journal, or go on with that of a resumed run; and the points in it that the run will measure again."""
    store = without_password(store_uri())
    if not resumed:
        return Journal.create(folder, store, **start), set()
    run_id, path = str(resumed["run_id"]), folder / "journal" / str(resumed.get("journal", ""))
    there = client is None or run_status(client, run_id) is not None
    journal = _held_journal(path)
    if journal is None:
        if client is not None and run_status(client, run_id) is None:
            raise InputError(f"run {run_id} is not in the store {store}, nor its journal in {folder}; drop `resume`")
        return Journal.create(folder, store, run_id=run_id, **start), set()
    if not there:
        journal.send_again()
    journal.store = store
    repeated = journal.points_after(int(resumed["journal_entries"]))
    journal.append("resume", **start, process=process_name())
    return journal, repeated


def _git_commit() -> str:
    """The commit of the checkout the package is run from, or `none` for an installed one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return "none"
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  (our own words)
    except (OSError, subprocess.CalledProcessError):
        return "none"
