"""The command `python -m arelu_meta.segment`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta.segment import main
from tests.supervised_runs import no_model
from tests.tiny_images import DISCS
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
TINY = ["--dataset", DISCS, "--epochs", "2", "--batch-size", "8", "--filters", "2", "--device", "cpu"]


@pytest.mark.usefixtures("no_model")
def test_prints_the_result(store: Path, statuses: Callable, capsys: pytest.CaptureFixture[str]):
    assert main([*TINY, "--lr", "0.02"]) == 0
    captured = capsys.readouterr()
    title = "arelu in unet: tests.tiny_images:discs (task phantom), adam lr 0.02, protocol sound, seed 0\n"
    assert captured.out.startswith(title)
    for part in ("mean over 1 patients' volumes", "no patient or writer", "patient_", "Dice %", "MLflow run"):
        assert part in captured.out
    assert captured.err.splitlines()[1].startswith("train 2/2  loss ")
    assert statuses(store) == ["FINISHED"]


BAD = [
    ("--activation arleu", "did you mean 'arelu'"),
    ("--filters 0", "--filters 0: must be at least 1"),
    ("--backbone unt", "unknown backbone 'unt'; did you mean 'unet'?"),
    ("--dataset tests.tiny_images:digits --split by_image", "has no masks; segmentation needs a set with masks"),
    ("--dataset tests.tiny_images:without_patients --split by_image", "names no patients"),
    ("--patience 0", "--patience 0: must be at least 1"),
    ("--dataset tests.tiny_images:masks_of_another_size", "masks (24, 1, 15, 16) do not fit images (24, 1, 16, 16)"),
    ("--augment shift", "augment 'shift' is not for this kind of run; use none or affine"),
    ("--augment crop_flip", "augment 'crop_flip' is not for this kind of run; use none or affine"),
    ("--label-smoothing 0.1", "label_smoothing is for classes"),
    ("--class-weights", "class_weights is for classes"),
    ("--select last --patience 2", "patience needs a validation to watch"),
    ("--percentiles 99 10", "--percentiles 99 10 must be two, the lower one first, such as 10 99"),
    ("--percentiles 10", "--percentiles 10 must be two"),
    ("--standardise-volumes --no-normalise", "--standardise-volumes is a way to normalise, and --normalise is off"),
    (
        "--drop-ends --image-size 8 --resize crop",
        "volumes are brought to --image-size by resampling; use --resize scale",
    ),
    ("--seeds 0-1 --together", "--together is for classifiers"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags for flags, _ in BAD])
def test_wrong_input_is_one_line(refused, flags, message):
    assert message in refused(main, [*TINY, *flags.split()])
