"""The command `python -m arelu_meta.paper`."""

import json
from pathlib import Path

import pytest

from arelu_meta.paper.__main__ import main
from arelu_meta.paper.campaign import STEPS


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("figures gradcan", "unknown figure 'gradcan'; did you mean 'gradcam'?"),
        ("steps mamal", "unknown step 'mamal'; did you mean 'maml'?"),
        ("run maml --hours 0", "--hours 0: must be above 0"),
        ("run mamal", "unknown step 'mamal'"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], flags: str, message: str):
    assert main(flags.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_steps_are_listed_with_their_cost(capsys: pytest.CaptureFixture[str]):
    """920 runs of 8.8 s are 2.25 hours, 200 of 32 s 1.78."""
    assert main(["steps", "maml", "first_epoch"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["step", "runs"]
    assert [row.split()[:5] for row in rows] == [
        ["maml", "200", "32", "1.8", "1.8"],
        ["first_epoch", "920", "8.8", "2.2", "4.0"],
    ]


@pytest.mark.usefixtures("store")
def test_documents_for_scripts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """One drawn without runs, one that lacks them: the document is printed, and the code says that something failed."""
    assert main(["figures", "conv_mnist", "converge", "--json"]) == 1
    drawn, missing = json.loads(capsys.readouterr().out)["figures"]
    assert Path(drawn["file"]).is_file()
    assert (drawn["missing"], missing["file"]) == (None, None)
    assert "cifar100_curves" in missing["run"]
    assert main(["steps", "maml", "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert (step["step"], step["runs"]) == ("maml", 200)
    monkeypatch.setattr("arelu_meta.paper.campaign.run_steps", lambda *_: [])
    assert main(["run", "maml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unfinished"] == []


def test_run_hands_its_flags_to_every_step(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    calls: list[tuple[list[str], list[str], float]] = []

    def run(steps, words, hours):
        calls.append(([step.name for step in steps], words, hours))
        return ["maml"] if hours < 5 else []

    monkeypatch.setattr("arelu_meta.paper.campaign.run_steps", run)
    assert main(["run", "--workers", "2", "--data-root", "d", "--shard", "1/2", "--dry-run"]) == 0
    words = ["--workers", "2", "--threads", "1", "--data-root", "d", "--shard", "1/2", "--dry-run"]
    assert calls == [([step.name for step in STEPS], words, float("inf"))]
    assert main(["run", "maml", "--hours", "1"]) == 1
    assert "not finished: maml; the same command goes on with them" in capsys.readouterr().err
