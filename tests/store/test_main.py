import json
from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta.runtime.machine import process_name
from arelu_meta.store.__main__ import main
from arelu_meta.store.connection import open_store
from arelu_meta.store.journal import Journal, runs_folder
from arelu_meta.store.sending import PROCESS
from arelu_meta.store.tracking import open_run


def test_what_waits_is_listed_and_sent(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    with open_run("tests", name="a run", tags={}, offline=True) as tracker:
        tracker.log_metrics({"loss": 1.0})
    capsys.readouterr()
    assert main(["show"]) == 0
    assert f"waits for the store: {runs_folder()}/tests-journal/journal/{tracker.run_id}" in capsys.readouterr().out
    assert statuses(store) == []
    assert main(["flush"]) == 0
    assert capsys.readouterr().out == f"brought to the MLflow store: 1 run of {runs_folder()}\n"
    assert statuses(store) == ["FINISHED"]
    assert main(["show"]) == 0
    *_, table, run, last = capsys.readouterr().out.splitlines()
    assert table.split() == ["experiment", "FINISHED", "RUNNING", "FAILED", "KILLED", "models", "artifacts"]
    assert run.split() == ["tests", "1", "0", "0", "0", "0", "0.0", "MB"]
    assert last == f"no run in {runs_folder()} waits for the store"


@pytest.mark.usefixtures("store")
def test_what_waits_is_listed_while_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:s3cret@127.0.0.1:9")
    with open_run("tests", name="a run", tags={}, offline=True) as tracker:
        pass
    capsys.readouterr()
    assert main(["show"]) == 0
    lines = capsys.readouterr()
    assert tracker.run_id in lines.out
    assert "no server answers at 127.0.0.1:9" in lines.err
    assert "s3cret" not in lines.err


@pytest.mark.usefixtures("store")
def test_what_cannot_be_sent_is_named(capsys: pytest.CaptureFixture[str]):
    journal = Journal.create(runs_folder() / "task-0", "sqlite:///elsewhere.db", experiment="t", name="n", tags={})
    journal.append("end", status="KILLED")
    journal.release()
    assert main(["flush"]) == 1
    lines = capsys.readouterr()
    assert (
        lines.err
        == f"error: {journal.path}: it is for the store sqlite:///elsewhere.db; set MLFLOW_TRACKING_URI to that\n"
    )
    assert lines.out == f"brought to the MLflow store: 0 runs of {runs_folder()}\n"


@pytest.mark.parametrize(
    "words", [[], ["flusch"], ["flush", "--now"], ["sync", "a.db"], ["sync", "nowhere", "b.db"], ["close-stale", "x"]]
)
def test_wrong_words_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_stale_runs_are_shown_and_closed(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    """This machine's processes are looked for; of another machine somebody has to know."""
    client, experiment_id = open_store("tests")
    gone = process_name().rpartition(":")[0] + ":0"
    mine, other = (client.create_run(experiment_id, tags={PROCESS: name}).info.run_id for name in (gone, "node7:1:1"))
    assert main(["show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"RUNNING, and its process is gone: {mine}" in lines
    assert f"RUNNING, on another machine or unknown: {other}" in lines
    assert main(["close-stale"]) == 0
    assert capsys.readouterr().out == f"FAILED: {mine}\n"
    assert main(["close-stale"]) == 0
    assert capsys.readouterr().out == "no run is without its process\n"
    assert main(["close-stale", "--host", "node7"]) == 0
    assert statuses(store) == ["FAILED", "FAILED"]


def test_a_store_is_copied(store: Path, capsys: pytest.CaptureFixture[str]):
    client, experiment_id = open_store("tests")
    client.log_metric(client.create_run(experiment_id).info.run_id, "loss", 1.0)
    words = ["sync", str(store), "copy.db"]
    assert main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == "runs: 1 new, 0 to go on with or changed, 0 complete there\n"
    assert main([*words, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["runs"], done["points"], done["failed"]) == (1, 1, [])
    assert main(["sync", str(store), f"sqlite:///{store}"]) == 2
    line = capsys.readouterr().err
    assert line == f"error: sqlite:///{store} is to be copied to itself; name another store\n"
    assert main(["sync", str(store), "http://me:s3cret@127.0.0.1:9/"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "s3cret" not in line
