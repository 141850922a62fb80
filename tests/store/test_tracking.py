import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import sqlalchemy
import torch
from mlflow import MlflowClient
from sqlalchemy.engine import Engine
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.store import tracking
from arelu_meta.store.connection import DIVERGED, has_diverged
from arelu_meta.store.journal import Journal
from arelu_meta.store.tracking import track

OPEN_AND_CLOSE = """
import json, sys
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.store.tracking import track
spec = FewShotSpec.model_validate({"task": "t", "seed": int(sys.argv[1]), "data": {"dataset": "digits"}})
with track(spec, experiment="shared", name=sys.argv[1], tags={}) as tracker:
    tracker.log_metrics({"value": float(sys.argv[1])})
"""


def open_run(spec: Any, **tags: str):
    return track(spec, experiment="tests", name="a run", tags=tags)


def test_finished_run(tiny_spec: Callable, store: Path, statuses: Callable):
    spec = tiny_spec()
    with open_run(spec, colour="blue") as tracker:
        tracker.log_metrics({"value": 1.5}, 3)
        tracker.set_tags({"shape": "round"})
        tracker.log_text("hello", "note.txt")
        assert statuses(store) == ["RUNNING"]
    assert statuses(store) == ["FINISHED"]
    stored = MlflowClient().get_run(tracker.run_id)
    assert stored.data.metrics == {"value": 1.5}
    assert stored.data.tags["colour"] == "blue"
    assert stored.data.tags["shape"] == "round"
    assert stored.data.tags["spec_hash"] == spec.identity


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (SystemExit, "FAILED")]
)
def test_end_state_and_metrics_of_a_broken_run(
    tiny_spec: Callable, store: Path, statuses: Callable, error: type[BaseException], status: str
):
    """What was noted before an error is in the store; after an interruption it is not: a resumed run notes it."""
    with pytest.raises(error), open_run(tiny_spec()) as tracker:  # noqa: PT012
        tracker.log_metrics({"value": 2.0})
        raise error
    assert statuses(store) == [status]
    kept = {} if status == "KILLED" else {"value": 2.0}
    assert MlflowClient().get_run(tracker.run_id).data.metrics == kept


def test_a_run_that_diverges_says_so_until_it_is_taken_up_again(tiny_spec: Callable, store: Path, statuses: Callable):
    with pytest.raises(DivergedError), open_run(tiny_spec()) as tracker:
        raise DivergedError("the query loss is nan at iteration 3")
    stored = MlflowClient().get_run(tracker.run_id)
    assert statuses(store) == ["FAILED"]
    assert stored.data.tags[DIVERGED] == "the query loss is nan at iteration 3"
    assert has_diverged(stored)
    with (
        pytest.raises(OSError, match="disk full"),
        track(tiny_spec(), experiment="tests", name="a run", tags={}, resumed=tracker.position),
    ):
        raise OSError("disk full")
    assert not has_diverged(MlflowClient().get_run(tracker.run_id))


def test_a_summary_that_was_edited_meanwhile_stops_no_resumed_run(tiny_spec: Callable, store: Path, statuses: Callable):
    """It is no part of the identity, so it may change; a parameter in MLflow may not."""
    spec = tiny_spec()
    with pytest.raises(KeyboardInterrupt), open_run(spec) as tracker:
        raise KeyboardInterrupt
    edited = spec.model_copy(update={"summary": "said in other words"})
    assert edited.identity == spec.identity
    with track(edited, experiment="tests", name="a run", tags={}, resumed=tracker.position) as again:
        assert again.run_id == tracker.run_id
    assert statuses(store) == ["FINISHED"]


def test_default_store_is_in_the_working_folder(
    tiny_spec: Callable, store: Path, statuses: Callable, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with open_run(tiny_spec()) as tracker:
        pass
    assert tracker.uri == "sqlite:///mlflow.db"
    assert statuses(store) == ["FINISHED"]


@pytest.mark.usefixtures("store")
def test_an_experiment_is_made_once(tiny_spec: Callable):
    identifiers = set()
    for _ in range(2):
        with open_run(tiny_spec()) as tracker:
            identifiers.add(tracker.experiment_id)
    assert len(identifiers) == 1


@pytest.fixture
def interrupt_inside() -> Iterator[Callable[[str], None]]:
    """Send a signal to this process in the middle of the transaction of the first statement that begins so."""
    listeners: list[Callable[..., None]] = []

    def arm(beginning: str, number: int = signal.SIGINT) -> None:
        def listener(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith(beginning) and not fired:
                fired.append(statement)
                signal.raise_signal(number)

        fired: list[str] = []
        listeners.append(listener)
        sqlalchemy.event.listen(Engine, "after_cursor_execute", listener)

    yield arm
    for listener in listeners:
        sqlalchemy.event.remove(Engine, "after_cursor_execute", listener)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO runs", "INSERT INTO params", "INSERT INTO metrics", "INSERT INTO tags"]
)
def test_interrupted_while_mlflow_writes(
    tiny_spec: Callable, store: Path, statuses: Callable, interrupt_inside: Callable, statement: str
):
    """The write is completed in its own thread, and the run is KILLED; the database is not left locked."""
    interrupt_inside(statement)
    with pytest.raises(KeyboardInterrupt), open_run(tiny_spec(), colour="blue") as tracker:  # noqa: PT012
        tracker.log_metrics({"value": 2.0})
        tracker.flush()
        for _ in range(300):  # an interruption of another thread ends no sleep
            time.sleep(0.1)
        pytest.fail("the interruption was lost")
    assert statuses(store) == ["KILLED"]
    assert mlflow.active_run() is None
    with open_run(tiny_spec()):
        pass
    assert statuses(store) == ["KILLED", "FINISHED"]


@pytest.mark.usefixtures("store")
def test_points_of_a_resumed_run_are_there_once(tiny_spec: Callable):
    """It was killed between its journal and its checkpoint: steps 2 and 3 are measured again, and one more.

    A speed is another the second time; it stays as it was first recorded.
    """
    spec = tiny_spec()
    with pytest.raises(KeyboardInterrupt), open_run(spec) as tracker:  # noqa: PT012
        for step in range(4):
            tracker.log_metrics({"loss": 1.0 / (step + 1), "speed": 10.0 + step}, step)
            tracker.flush()
            if step == 1:
                checkpoint = tracker.position
        raise KeyboardInterrupt
    with track(spec, experiment="tests", name="a run", tags={}, resumed=checkpoint) as again:
        for step in range(2, 5):
            again.log_metrics({"loss": 1.0 / (step + 1), "speed": 20.0 + step}, step)
    assert again.run_id == tracker.run_id
    losses, speeds = (MlflowClient().get_metric_history(tracker.run_id, name) for name in ("loss", "speed"))
    assert sorted((point.step, point.value) for point in losses) == [(step, 1.0 / (step + 1)) for step in range(5)]
    assert sorted((point.step, point.value) for point in speeds) == [(0, 10), (1, 11), (2, 12), (3, 13), (4, 24)]


@pytest.mark.usefixtures("store")
def test_a_resumed_run_that_the_store_has_lost_is_there_as_a_whole(tiny_spec: Callable):
    """Its journal has what was measured before; without the journal there is nothing to go on with."""
    spec = tiny_spec()
    with pytest.raises(KeyboardInterrupt), open_run(spec, colour="blue") as tracker:  # noqa: PT012
        tracker.log_metrics({"loss": 1.0}, 0)
        tracker.flush()
        checkpoint = tracker.position
        raise KeyboardInterrupt
    MlflowClient().delete_run(tracker.run_id)
    with track(spec, experiment="tests", name="a run", tags={"colour": "blue"}, resumed=checkpoint) as again:
        again.log_metrics({"loss": 0.5}, 1)
    assert again.run_id != tracker.run_id
    history = MlflowClient().get_metric_history(again.run_id, "loss")
    assert sorted((point.step, point.value) for point in history) == [(0, 1.0), (1, 0.5)]
    with (
        pytest.raises(InputError, match=r"is not in the store .* drop `resume`"),
        track(spec, experiment="tests", name="a run", tags={}, resumed={**checkpoint, "journal": "gone"}),
    ):
        pytest.fail("it began in the middle")


@pytest.mark.slow
def test_four_processes_on_one_new_database(tmp_path: Path, root: Path, statuses: Callable):
    """They make the tables and the experiment together; every one of them ends well."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_CLOSE, str(number)],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    errors = [process.communicate(timeout=180)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, "\n".join(errors)
    assert statuses(tmp_path / "mlflow.db") == ["FINISHED"] * 4


def test_inside_an_active_run_of_the_callers(tiny_spec: Callable, store: Path, tmp_path: Path):
    """In another store; it stays active, gets nothing of ours, and is where the caller's next metric goes."""
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'own.db'}")
    with mlflow.start_run() as own:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{store}"
        with open_run(tiny_spec(), colour="blue") as tracker:
            tracker.log_metrics({"value": 1.5})
            tracker.log_text("hello", "note.txt")
            tracker.log_dict({"a": 1}, "note.json")
            tracker.log_network(nn.Conv2d(1, 2, 3), digits())
        assert mlflow.active_run() == own
        mlflow.log_metric("mine", 1.0)
    stored = MlflowClient(f"sqlite:///{store}").get_run(tracker.run_id)
    assert stored.data.metrics == {"value": 1.5}
    assert stored.data.tags["mlflow.source.type"] == "LOCAL"
    assert len(stored.outputs.model_outputs) == 1
    theirs = MlflowClient(f"sqlite:///{tmp_path / 'own.db'}").get_run(own.info.run_id)
    assert (theirs.data.metrics, theirs.data.params, theirs.outputs.model_outputs) == ({"mine": 1.0}, {}, [])
    assert theirs.info.status == "FINISHED"


def digits() -> ImageSet:
    return ImageSet("tiny", torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"))


@pytest.mark.usefixtures("store")
def test_data_sets_are_logged_by_name_and_digest(tiny_spec: Callable):
    with open_run(tiny_spec()) as tracker:
        tracker.log_dataset(digits(), "train")
    (entry,) = MlflowClient().get_run(tracker.run_id).inputs.dataset_inputs
    assert (entry.dataset.name, entry.dataset.digest) == ("tiny", digits().digest[:32])
    assert [(tag.key, tag.value) for tag in entry.tags] == [("mlflow.data.context", "train")]
    assert json.loads(entry.dataset.source)["tags"] == {"source": "memory", "verified": "False"}


def test_a_journal_that_another_process_sends_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A comparison that is run again sends what killed cells recorded while it resumes them."""
    made = Journal.create(tmp_path / "task-0", "sqlite:///mlflow.db", experiment="t", name="n", tags={})
    monkeypatch.setattr("arelu_meta.store.tracking.time.sleep", lambda _: made.release())
    held = tracking._held_journal(made.path)
    assert held is not None
    monkeypatch.setattr(tracking, "LONGEST_SENDING", -1.0)
    with pytest.raises(InputError, match="is sent by another process"):
        tracking._held_journal(made.path)
    held.release()
    assert tracking._held_journal(tmp_path / "task-1") is None
