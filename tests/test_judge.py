"""The command `python -m arelu_meta.judge`."""

import json
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import pytest

import arelu_meta
from arelu_meta.judge import main

COLUMNS = "arm,seed,score\n"


def rows(*differences: float) -> str:
    """An arm `a` and one `b` that differs by so much, seed by seed."""
    pairs = [(f"a,{seed},{seed}", f"b,{seed},{seed + difference}") for seed, difference in enumerate(differences)]
    return COLUMNS + "\n".join(line for pair in pairs for line in pair)


@pytest.mark.parametrize(
    ("table", "flags", "code", "answer"),
    [
        (rows(1.0, 1.1, 0.9, 1.0), "", 0, "different"),
        (rows(1.0, -1.1, 0.9, -1.0), "", 3, "no difference detectable"),
        (rows(1.0, -1.1, 0.9, -1.0), "--margin 10", 4, "equivalent"),
        (rows(1.0), "", 5, "too little data"),
        (COLUMNS, "", 5, "too little data"),
    ],
)
def test_exit_codes(table: str, flags: str, code: int, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "runs.csv"
    path.write_text(table)
    words = [str(path), "--arm", "arm", "--metric", "score", *flags.split()]
    assert main(words) == code
    assert capsys.readouterr().out.startswith(f"score by arm: {path}\n")
    assert main([*words, "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["exit_code"]) == (answer, code)


def test_markdown_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "runs.csv"
    path.write_text(rows(1.0, 1.1, 0.9, 1.0).replace("score", "val/loss"))
    flags = ["--arm", "arm", "--metric", "val/loss", "--baseline", "b", "--markdown", "--out", str(tmp_path / "out")]
    assert main([str(path), *flags]) == 0
    captured = capsys.readouterr()
    assert "**a is detectably better than b on val/loss:" in captured.out  # of a loss less is better
    assert "report.html and the files beside it" in captured.err
    assert "what these seeds can find" in (tmp_path / "out" / "report.html").read_text()
    assert main([str(path), *flags[:6], "--no-lower-is-better"]) == 0
    assert "a is detectably worse than b" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.csv --arm lr --metric acc", "cannot read none.csv"),
        ("nobody --arm lr --metric acc", "unknown experiment 'nobody'; known: none"),
        ("nobody --arm lr", "the following arguments are required: --metric"),
    ],
)
def test_wrong_input_is_one_line(
    refused: Callable[[Callable[[list[str]], int], list[str]], str], words: str, message: str
):
    assert message in refused(main, words.split())


def test_the_name_is_the_function_also_where_the_command_was_imported():
    assert isinstance(arelu_meta.judge, FunctionType)
