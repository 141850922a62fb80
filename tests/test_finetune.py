"""The command `python -m arelu_meta.finetune`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from arelu_meta.finetune import main
from tests.supervised_runs import no_model
from tests.tiny_images import DIGITS, NEGATIVE
from tests.tiny_networks import TINY as TINY_NETWORK
from tests.tiny_networks import saved_state
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
    for part in ("n = 40)", "no pretrain", "no finetune", "finetune 1", "finetune 2", "MLflow run"):
        assert part in captured.out
    assert f"{NEGATIVE}, fine-tuning 2/2  loss " in captured.err
    assert statuses(store) == ["FINISHED"]


@pytest.mark.usefixtures("no_model")
def test_any_network(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    flags = ["--model", TINY_NETWORK, "--data", NEGATIVE, "--epochs", "2", "--activation", "arelu", "--device", "cpu"]
    more = "--freeze-epochs 1 --layer-decay 0.5 --ema 0.5 --label-smoothing 0.1 --clip-norm 1 --schedule cosine "
    more += "--optimizer adamw --weight-decay 0.1 --activation-weight-decay 0.1 --activation-lr-multiplier 0.1 "
    more += "--accumulate 2 --class-weights --patience 3 --precision bf16 --warmup-epochs 1 --augment shift "
    more += "--train-per-class 5 --resume --channels-last --fused --deterministic"
    assert main([*flags, *more.split()]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"arelu in {TINY_NETWORK}: {NEGATIVE}, adamw lr 0.01, protocol sound, seed 0\n")
    for part in ("n = 40)", "2 sites from ReLU to AReLU", "50 to train, 3x28x28", "most mistaken for", "MLflow run"):
        assert part in captured.out
    assert "images/s" in captured.err
    assert statuses(store) == ["FINISHED"]


def test_help_shows_the_flags_of_the_kind_that_is_meant(capsys: pytest.CaptureFixture[str]):
    for flags, shown, hidden in (
        (["--help"], "--pretrain-lr", "--model-options"),
        (["--model", "resnet18", "--help"], "--model-options", "--pretrain-lr"),
        (["--task", "finetune", "--help"], "--train-per-class", "--source"),
    ):
        with pytest.raises(SystemExit):
            main(flags)
        text = capsys.readouterr().out
        assert shown in text
        assert hidden not in text


MODEL = f"--model {TINY_NETWORK} --data {NEGATIVE}"
BAD_MODEL = [
    (f"--model resnet81 --data {NEGATIVE}", "unknown model 'resnet81'; did you mean 'resnet18'"),
    ("--model resnet81 --data tests.tiny_images:labels_beyond", "unknown model 'resnet81'"),  # before images are read
    (f"--model {TINY_NETWORK} --weights no.pth --data tests.tiny_images:labels_beyond", "no weights file 'no.pth'"),
    (f"{MODEL} --activation arleu", "unknown activation 'arleu'; did you mean 'arelu'"),
    (f"{MODEL} --weights nowhere.pth", "no weights file 'nowhere.pth'"),
    (f"{MODEL} --weights code.pth", "code.pth is refused: it holds more than tensors"),
    (f"{MODEL} --weights other.pth", "first.weight is 5x3x5x5 there and 6x3x5x5 here"),
    (f"{MODEL} --image-size 5", "cannot take images of 3x5x5"),
    (f"--model {TINY_NETWORK} --data tests.tiny_images:discs", "discs has one class"),
    ("--model tests.tiny_networks:two_heads --data digits", "name it by --head; candidates: left, right"),
    (
        "--model tests.tiny_networks:two_heads --data digits --head left",
        "--head left: the network's answers do not come from this layer",
    ),
    (f"{MODEL} --mean 0.5", "--mean has 1 numbers and --std 0; give as many of each"),
    (f"{MODEL} --std 0 --mean 0", "deviations must be above 0"),
    (f"{MODEL} --source digits", "unknown flag '--source'"),
    ("--task digits_classify --model resnet18", "kind 'classify'; run it with python -m arelu_meta.classify"),
]


@pytest.mark.parametrize(("flags", "message"), BAD_MODEL, ids=[flags for flags, _ in BAD_MODEL])
def test_wrong_input_about_any_network_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str, message: str
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    torch.save({"head.weight": print}, "code.pth")
    torch.save(saved_state(width=5), "other.pth")
    assert main(flags.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert {path.name for path in tmp_path.iterdir()} == {"code.pth", "other.pth"}


BAD = [
    ("--target strete", "did you mean 'street'"),
    ("--patience 3", "a transfer has fixed epochs; leave --patience out"),
    ("--pretrain-lr 0", "--pretrain-lr 0: must be greater than 0"),
    ("--report-epochs 1 3", "report_epochs (1, 3) must lie between 1 and epochs = 2"),
    ("--dataset digits", "--dataset goes with --model"),
    ("--image-size 20", "mnist_conv takes images of 28 to 35 pixels a side, not 20x20"),
    (
        "--target tests.tiny_images:discs --resize scale",
        "discs has one class",
    ),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags for flags, _ in BAD])
def test_wrong_input_is_one_line(refused, flags, message):
    assert message in refused(main, [*TINY, *flags.split()])
