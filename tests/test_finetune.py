"""The command `python -m arelu_meta.finetune`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta.finetune import main
from tests.supervised_runs import no_model
from tests.tiny_images import DIGITS, NEGATIVE
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
SETS = ["--source", DIGITS, "--target", NEGATIVE, "--device", "cpu"]
TINY = [*SETS, "--epochs", "2", "--report-epochs", "1", "2", "--pretrain-epochs", "1"]


@pytest.mark.usefixtures("no_model")
def test_prints_the_result(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    assert main([*TINY, "--lr", "0.02"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(
        f"arelu in mnist_conv: {DIGITS} to {NEGATIVE}, fine-tuned with sgd lr 0.02, seed 0\n"
    )
    for part in ("(n = 40)", "no pretrain", "no finetune", "finetune 1", "finetune 2", "MLflow run"):
        assert part in captured.out
    assert f"{NEGATIVE}, fine-tuning 2/2  loss " in captured.err
    assert statuses(store) == ["FINISHED"]


BAD = [
    ("--target strete", "did you mean 'street'"),
    ("--pretrain-lr 0", "--pretrain-lr 0: must be greater than 0"),
    ("--report-epochs 1 3", "report_epochs (1, 3) must lie between 1 and epochs = 2"),
    ("--dataset digits", "unknown flag '--dataset'"),
    ("--image-size 20", "mnist_conv takes images of 28 to 35 pixels a side, not 20x20"),
    (
        "--target tests.tiny_images:discs --resize scale",
        "a network that is tested untuned on the target needs the same ones",
    ),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags for flags, _ in BAD])
def test_wrong_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str, message: str
):
    """Value and remedy on one line, exit code 2, and not even a store is made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main([*TINY, *flags.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert list(tmp_path.iterdir()) == []
