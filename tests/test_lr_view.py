"""The command `python -m arelu_meta.lr_view`."""

from pathlib import Path

import pytest

from arelu_meta.lr_view import main
from tests.supervised_runs import no_model
from tests.tiny_images import NEGATIVE
from tests.tiny_networks import TINY
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
FLAGS = ["--model", TINY, "--data", NEGATIVE, "--epochs", "1", "--device", "cpu", "--lr-sweep", "0.001:0.1"]


@pytest.mark.usefixtures("store", "no_model")
def test_table_csv_and_figure(capsys):
    assert main([*FLAGS, "--arms", "own", "arelu"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("validation accuracy % by learning rate, mean of 1 seed\n  activation  0.001")
    assert captured.err.count("validation %") == 6
    assert "6/6  arelu  lr 0.1  seed 0" in captured.err
    assert len(Path("lr_view/points.csv").read_text().splitlines()) == 7
    assert Path("lr_view/lr_view.png").read_bytes().startswith(b"\x89PNG")
    assert Path("lr_view/table.txt").read_text() in captured.out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--lr-sweep 1", "--lr-sweep 1: give LOW:HIGH"),
        ("--arms arleu", "unknown activation 'arleu'; did you mean 'arelu'"),
        ("--seeds a", "seeds 'a' are not numbers and ranges such as 0-4"),
        ("--seed 4", "--seed is set by lr_view itself; give --seeds"),
        ("--lr=0.1", "--lr=0.1 is set by lr_view itself; give --lr-sweep"),
        ("--activation relu", "--activation is set by lr_view itself; give --arms"),
        ("--sedes 1", "unknown flag '--sedes'"),
        ("--data strete", "did you mean 'street'"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main([*FLAGS, *flags.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
