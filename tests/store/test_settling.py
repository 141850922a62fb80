import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from arelu_meta.runtime.machine import process_name
from arelu_meta.store import settling
from arelu_meta.store.connection import open_store
from arelu_meta.store.journal import Journal, runs_folder
from arelu_meta.store.models import save_few_shot_model
from arelu_meta.store.sending import PROCESS, send_entry
from tests.tiny_model import tiny_model

ENDED = process_name().rpartition(":")[0] + ":0"  # this process's number, and another start


def test_the_end_of_a_run_whose_process_is_gone(store: Path, statuses: Callable):
    """Its journal has no end: it gets one, FAILED, with the time it was last written to."""
    client, experiment_id = open_store("tests")
    start = {"experiment": "tests", "name": "a run", "tags": {}}
    journal = Journal.create(runs_folder() / "task-0", f"sqlite:///{store}", **start)
    journal.append("resume", **start, process=ENDED)
    while journal.next is not None:
        send_entry(client, experiment_id, journal, again=False)
    journal.release()
    assert statuses(store) == ["RUNNING"]
    settling.settle_runs("tests")
    assert statuses(store) == ["FAILED"]


@pytest.mark.parametrize("name", ["../../../../secret", "/etc/hostname"])
def test_a_journal_of_a_stranger_sends_no_file_of_mine(store: Path, tmp_path: Path, name: str):
    """Flushed, it would be in a store where the stranger can read it."""
    (tmp_path / "secret").write_text("mine")
    start = {"experiment": "tests", "name": "a run", "tags": {}}
    journal = Journal.create(runs_folder() / "task-0", f"sqlite:///{store}", **start)
    journal.append("artifact", file=name, folder="")
    journal.append("end", status="FINISHED")
    journal.release()
    sent, left = settling.flush(runs_folder())
    assert sent == 0
    assert f"it names {name!r}; delete it" in left[0]
    assert not list(tmp_path.rglob("artifacts/*"))


@pytest.mark.parametrize("kind", ["artifact", "model"])
@pytest.mark.parametrize("what", ["link", "link to a folder", "pipe"])
def test_links_and_pipes_in_what_a_journal_names_are_not_sent(store: Path, tmp_path: Path, kind: str, what: str):
    """What it names may be a folder, whose links MLflow follows; a pipe in it would be read for ever."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "secret").write_text("mine")
    start = {"experiment": "tests", "name": "a run", "tags": {}}
    journal = Journal.create(runs_folder() / "task-0", f"sqlite:///{store}", **start)
    saved = journal.file("few_shot")
    tiny_model(ways=2).save(tmp_path / "few_shot")
    save_few_shot_model(saved, tmp_path / "few_shot")
    if what == "pipe":
        os.mkfifo(saved / "model" / "more")
    else:
        (saved / "model" / "more").symlink_to(tmp_path / "mine" / ("secret" if what == "link" else ""))
    name = saved.relative_to(journal.path).as_posix()
    journal.append(kind, **({"file": name, "folder": ""} if kind == "artifact" else {"folder": name}))
    journal.append("end", status="FINISHED")
    journal.release()
    sent, left = settling.flush(runs_folder())
    assert sent == 0
    assert "is no journal of ours: more is no plain file; delete it" in left[0]
    assert not list(tmp_path.rglob("artifacts/*"))


def test_stale_runs_of_another_folder(store: Path, statuses: Callable):
    """Told by the tag of the process; a run of a living process, or of another machine, is left alone."""
    client, experiment_id = open_store("tests")
    for process in (ENDED, process_name(), "another-machine:1:1"):
        client.create_run(experiment_id, tags={PROCESS: process})
    closed = settling.close_stale(client, experiment_id)
    assert len(closed) == 1
    assert MlflowClient().get_run(closed[0]).data.tags["ended_by"] == settling.GONE
    assert sorted(statuses(store)) == ["FAILED", "RUNNING", "RUNNING"]


def test_a_run_that_ended_after_it_was_listed(store: Path, statuses: Callable, monkeypatch: pytest.MonkeyPatch):
    """It was RUNNING when it was searched for; by the time its process is looked for, both have ended well."""
    client, experiment_id = open_store("tests")
    run = client.create_run(experiment_id, tags={PROCESS: ENDED})
    search_runs = MlflowClient.search_runs

    def ends_meanwhile(*arguments: Any, **options: Any) -> Any:
        found = search_runs(*arguments, **options)
        client.set_terminated(run.info.run_id, "FINISHED")
        return found

    monkeypatch.setattr(MlflowClient, "search_runs", ends_meanwhile)
    assert settling.close_stale(client, experiment_id) == []
    assert statuses(store) == ["FINISHED"]
    assert "ended_by" not in client.get_run(run.info.run_id).data.tags


@pytest.mark.usefixtures("store")
def test_a_journal_for_another_store_is_left_and_named():
    journal = Journal.create(runs_folder() / "task-0", "http://me:***@elsewhere", experiment="t", name="n", tags={})
    journal.append("end", status="FINISHED")
    journal.release()
    sent, (line,) = settling.flush(runs_folder())
    assert sent == 0
    assert "it is for the store http://me:***@elsewhere" in line
