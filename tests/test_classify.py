"""The command `python -m arelu_meta.classify`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta.classify import main
from tests.supervised_runs import no_model
from tests.tiny_images import DIGITS
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
TITLE = "arelu in mnist_conv: tests.tiny_images:digits (task digits_classify)"
TINY = ["--dataset", DIGITS, "--epochs", "2", "--device", "cpu"]


@pytest.mark.usefixtures("no_model")
def test_prints_the_result(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    assert main([*TINY, "--schedule", "step", "--milestones", "1", "2", "--lr", "0.02"]) == 0
    captured = capsys.readouterr()
    title = (
        "arelu in mnist_conv: tests.tiny_images:digits (task digits_classify), sgd lr 0.02, protocol sound, seed 0\n"
    )
    assert captured.out.startswith(title)
    for part in ("n = 40)", "10.00 %", "epoch", "MLflow run", "most mistaken for"):
        assert part in captured.out
    assert captured.err.splitlines()[1].startswith("train 2/2  loss ")
    assert statuses(store) == ["FINISHED"]


@pytest.mark.usefixtures("store")
def test_several_seeds_of_a_part_of_the_set(capsys: pytest.CaptureFixture[str]):
    flags = ["--seeds", "0-1", "--limit-train", "60", "--limit-test", "20", "--no-keep-model"]
    assert main([*TINY, *flags]) == 0
    report = capsys.readouterr().out
    assert report.startswith(
        "arelu in mnist_conv: tests.tiny_images:digits (task digits_classify), sgd lr 0.01, protocol sound, 2 seeds\n"
    )
    assert "(n = 2), 95 % interval over seeds" in report
    assert "at most 60 images to train on, at most 20 each to validate and to test, drawn class by class" in report


BAD = [
    ("--activation arleu", "did you mean 'arelu'"),
    ("--backbone unet", "unknown backbone 'unet'"),
    ("--optimizer lion", "--optimizer lion: must be 'sgd', 'adam' or 'adamw'"),
    ("--lr 0", "--lr 0: must be greater than 0"),
    ("--chunk 4", "unknown flag '--chunk'; known: "),
    ("--epoch 3", "unknown flag '--epoch'; did you mean '--epochs'?"),
    ("--schedule step", "schedule 'step' needs --milestones, such as 50 75"),
    ("--milestones 1 a", "--milestones a: must be a valid integer"),
    ("--augment affine", "augment 'affine' is not for this kind of run; use none or shift or crop_flip"),
    ("--image-size 20", "mnist_conv takes images of 28 to 35 pixels a side, not 20x20"),
    ("--task phantom", "phantom"),
    ("--dataset tests.tiny_images:labels_beyond", "tiny_digits: label 9 is outside 0..4 (5 class names)"),
    ("--seeds 0-", "seeds '0-' are not numbers and ranges such as 0-4 or 0,2,7"),
    ("--seeds 0-1 --seed 3", "--seed 3 and --seeds 0-1 both name seeds"),
    ("--together", "name them, such as --seeds 0-4"),
    ("--seeds 0-1 --together --activation rrelu", "its own random numbers in RReLU"),
    ("--limit-train 0", "--limit-train 0: must be at least 1"),
    ("--select last --patience 2", "patience needs a validation to watch"),
    ("--lr 1e308", "--lr 1e308: must be less than or equal to 1"),
    ("--weight-decay 1e300", "--weight-decay 1e300: must be less than or equal to 1"),
    ("--image-size 100000", "or lower --image-size"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags for flags, _ in BAD])
def test_wrong_input_is_one_line(refused, flags, message):
    assert message in refused(main, [*TINY, *flags.split()])
