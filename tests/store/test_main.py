from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta.store.__main__ import main
from arelu_meta.store.journal import Journal, runs_folder
from arelu_meta.store.tracking import open_run


def test_what_waits_is_listed_and_sent(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    with open_run("tests", name="a run", tags={}, offline=True) as tracker:
        tracker.log_metrics({"loss": 1.0})
    capsys.readouterr()
    assert main(["show"]) == 0
    assert tracker.run_id in capsys.readouterr().out
    assert statuses(store) == []
    assert main(["flush"]) == 0
    assert capsys.readouterr().out == f"brought to the MLflow store: 1 run of {runs_folder()}\n"
    assert statuses(store) == ["FINISHED"]
    assert main(["show"]) == 0
    assert capsys.readouterr().out == f"no run in {runs_folder()} waits for the store\n"


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


@pytest.mark.parametrize("words", [[], ["flusch"], ["flush", "--now"]])
def test_wrong_words_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
