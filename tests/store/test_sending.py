import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import StoreError
from arelu_meta.store import sending, settling
from arelu_meta.store.connection import open_store
from arelu_meta.store.journal import Journal, runs_folder
from arelu_meta.store.tracker import Tracker
from arelu_meta.store.tracking import open_run

IMAGES = ImageSet("tiny", torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"))


class Line:
    """The line to the store: cut, nothing gets through."""

    def __init__(self) -> None:
        self.cut = False
        self.after = 10**9
        """calls that still get through before it is cut"""

    def pass_on(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.after -= 1
            if self.cut or self.after < 0:
                raise ConnectionError("cut")
            return method(*arguments, **options)

        return call


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    """What every request to the store goes through; pauses between attempts are short."""
    made = Line()
    for name in ("create_run", "log_batch", "log_inputs", "log_artifact", "set_terminated", "create_logged_model"):
        monkeypatch.setattr(MlflowClient, name, made.pass_on(getattr(MlflowClient, name)))
    monkeypatch.setattr(sending, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr("arelu_meta.store.tracker.PATIENCE", 0.2)
    monkeypatch.setattr("arelu_meta.store.tracker.KILLED_PATIENCE", 0.1)
    return made


def points(store: Path) -> list[tuple]:
    with sqlite3.connect(store) as connection:
        return connection.execute("SELECT key, step, value FROM metrics ORDER BY key, step").fetchall()


def one_row(store: Path, columns: str, table: str = "runs") -> tuple:
    with sqlite3.connect(store) as connection:
        (row,) = connection.execute(f"SELECT {columns} FROM {table}").fetchall()  # noqa: S608
    return row


def record(tracker: Tracker) -> None:
    """Log one of everything."""
    for step in range(4):
        tracker.log_metrics({"loss": 1.0 / (step + 1), "accuracy": step / 4}, step)
        tracker.flush()
    tracker.log_dataset(IMAGES, "train")
    tracker.log_text("hello", "notes/note.txt")
    tracker.log_network(nn.Sequential(nn.Conv2d(1, 2, 8), nn.Flatten()), IMAGES)


EXPECTED = sorted(
    (key, step, value) for step in range(4) for key, value in (("loss", 1.0 / (step + 1)), ("accuracy", step / 4))
)


def assert_complete(store: Path, run_id: str) -> None:
    """All of `record` is in the store, once."""
    assert points(store) == EXPECTED
    run = MlflowClient().get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["colour"] == "blue"
    assert [one.dataset.name for one in run.inputs.dataset_inputs] == ["tiny"]
    assert [one.path for one in MlflowClient().list_artifacts(run_id, "notes")] == ["notes/note.txt"]
    assert one_row(store, "status, source_run_id", "logged_models") == (2, run_id)  # 2: READY


def test_a_store_that_is_away_for_good_costs_no_training(store: Path, line: Line, capsys: pytest.CaptureFixture[str]):
    """One line when it goes, one in the end; later all of it is brought there, with the times of the run itself."""
    with open_run("tests", name="a run", tags={"colour": "blue"}) as tracker:
        line.cut = True
        record(tracker)
        inside = int(time.time() * 1000)
    after = int(time.time() * 1000)
    assert capsys.readouterr().err.count("\n") == 2
    assert one_row(store, "status") == ("RUNNING",)
    line.cut = False
    assert settling.flush(runs_folder()) == (1, [])
    assert_complete(store, tracker.run_id)
    start, end = one_row(store, "start_time, end_time")
    assert start <= inside <= end <= after
    assert settling.flush(runs_folder()) == (0, [])
    assert list(runs_folder().rglob("entries.jsonl")) == []


@pytest.mark.parametrize("after", [0, 2, 7])
def test_a_store_that_comes_back_has_every_point_once(store: Path, line: Line, after: int):
    """The line is cut after some requests, at a moment when a request may have been answered in part, and mended."""
    with open_run("tests", name="a run", tags={"colour": "blue"}) as tracker:
        line.after = after
        record(tracker)
        time.sleep(0.05)
        line.after = 10**9
    assert_complete(store, tracker.run_id)


def test_entries_that_were_sent_and_not_noted(store: Path, line: Line, tmp_path: Path):
    """The process died between the store's answer and its own note: all of it is sent again, and there once."""
    line.cut = False
    with open_run("tests", name="a run", tags={"colour": "blue"}, folder=tmp_path / "runs" / "r") as tracker:
        record(tracker)
        line.cut = True
    (journal,) = (Journal.open(path.parent) for path in tmp_path.rglob("sent.json"))
    line.cut = False
    client, experiment_id = open_store("tests")
    while journal.next is not None:
        sending.send_entry(client, experiment_id, journal, again=True)
    journal.send_again()
    while journal.next is not None:
        sending.send_entry(client, experiment_id, journal, again=True)
    assert_complete(store, tracker.run_id)


@pytest.mark.usefixtures("store")
def test_a_store_that_links_no_metrics_to_models_is_said_when_the_run_is_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sending, "link_metrics", lambda _client, _run_id: "it does not know them")
    with (
        pytest.warns(UserWarning, match=r"links no metrics to models \(it does not know them\)"),
        open_run("tests", name="a run", tags={}) as tracker,
    ):
        tracker.log_metrics({"test/accuracy": 0.5}, 0)
    assert MlflowClient().get_run(tracker.run_id).info.status == "FINISHED"


def test_a_model_whose_sending_broke_off(store: Path, line: Line, monkeypatch: pytest.MonkeyPatch):
    """After the store had noted the model as an output of the run: sent again, it is there once."""
    log_outputs, calls = MlflowClient.log_outputs, []

    def breaks_off_once(*arguments: Any) -> None:
        log_outputs(*arguments)
        calls.append(arguments)
        line.cut = len(calls) == 1
        if line.cut:
            raise ConnectionError("cut")

    monkeypatch.setattr(MlflowClient, "log_outputs", breaks_off_once)
    with open_run("tests", name="a run", tags={"colour": "blue"}) as tracker:
        record(tracker)
    assert calls
    line.cut = False
    settling.flush(runs_folder())
    assert_complete(store, tracker.run_id)
    assert len(MlflowClient().get_run(tracker.run_id).outputs.model_outputs) == 1


def test_offline_nothing_is_asked_of_the_store(store: Path, line: Line, statuses: Callable):
    line.cut = True
    with open_run("tests", name="a run", tags={"colour": "blue"}, offline=True) as tracker:
        record(tracker)
    assert statuses(store) == []
    line.cut = False
    assert settling.flush(runs_folder()) == (1, [])
    with sqlite3.connect(store) as connection:
        ((run_id,),) = connection.execute(
            "SELECT run_uuid FROM tags WHERE key = 'journal' AND value = ?", (tracker.run_id,)
        )
    assert_complete(store, run_id)


def test_a_store_that_refuses_the_run_is_wrong_input(store: Path, line: Line, statuses: Callable):
    line.cut = True
    with pytest.raises(StoreError, match=r"does not take the run: .*cut"), open_run("tests", name="a run", tags={}):
        pytest.fail("it began")
    assert statuses(store) == []
    assert list(runs_folder().rglob("entries.jsonl")) == []
    for thread in threading.enumerate():
        if thread.name == "sends the journal":
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def hanging(line: Line, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A store that takes a connection and does not answer from the moment that this is set; in the end it does."""
    hangs, over = threading.Event(), threading.Event()
    log_batch = line.pass_on(MlflowClient.log_batch)

    def answer(*arguments: Any, **options: Any) -> Any:
        if hangs.is_set():
            over.wait(60)
        return log_batch(*arguments, **options)

    monkeypatch.setattr(MlflowClient, "log_batch", answer)
    yield hangs
    over.set()


@pytest.mark.parametrize("error", [KeyboardInterrupt, None])
def test_a_store_that_hangs_is_not_waited_for(
    store: Path, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None
):
    """It is asked, and would answer that it is there; Ctrl-C waits less than a second, the end of a run a while."""
    monkeypatch.setattr(sending, "LONGEST_REQUEST", 0.5)
    start = 0.0
    with pytest.raises(error) if error else nullcontext(), open_run("tests", name="a run", tags={}) as tracker:
        hanging.set()
        tracker.log_metrics({"loss": 1.0})
        tracker.flush()
        start = time.monotonic()
        if error:
            raise error
    assert (0.0 if error else 0.5) < time.monotonic() - start < 1.0 + (error is None)
    assert one_row(store, "status") == ("RUNNING",)


def test_ctrl_c_is_not_held_up_by_a_store_that_is_away(store: Path, line: Line):
    start = 0.0
    with pytest.raises(KeyboardInterrupt), open_run("tests", name="a run", tags={}) as tracker:  # noqa: PT012
        line.cut = True
        tracker.log_metrics({"loss": 1.0})
        tracker.flush()
        start = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - start < 1.0
    line.cut = False
    settling.flush(runs_folder())
    assert one_row(store, "status") == ("KILLED",)
