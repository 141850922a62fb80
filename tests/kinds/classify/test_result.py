import math
from typing import Any

import numpy as np
import pytest
from torch import nn

from arelu_meta.kinds.classify.result import ClassifyResult
from tests.supervised_runs import classify_spec

LABELS = np.array([0, 0, 1, 1, 2, 2, 2, 2])
ANSWERS = np.array([0, 1, 1, 1, 2, 0, 0, 1])


def made(classes: int = 3, logits: np.ndarray | None = None, **given: Any) -> ClassifyResult:
    sections = {name: given.pop(name) for name in ("data", "evaluation", "training", "seed") if name in given}
    values = {
        "spec": classify_spec(**sections),
        "network": nn.Identity(),
        "class_names": tuple("abcdefgh"[:classes]),
        "labels": LABELS,
        "logits": np.eye(classes, dtype=np.float32)[ANSWERS] if logits is None else logits,
        "held_out": "images",
        "verified": True,
        "selected_epoch": 2,
        "curves": {},
        "seconds": 1.25,
        "run_id": "abc",
        "experiment_id": "7",
        "tracking_uri": "sqlite:///mlflow.db",
    }
    return ClassifyResult(**{**values, **given})


def test_accuracy_and_its_interval():
    """4 of 8 right: sd sqrt(8 / 7 / 4), standard error sqrt(1 / 28), t(0.975, 7) = 2.364624."""
    test = made().test
    assert (test.mean, test.n) == (0.5, 8)
    assert test.half_width == pytest.approx(2.364624 * math.sqrt(1 / 28), rel=1e-6)


def test_confusion_counts_labels_by_answers():
    assert made().confusion.tolist() == [[1, 1, 0], [0, 2, 0], [2, 1, 1]]


def test_top5_of_six_classes():
    """The label is last of six for the first two images only: 6 of 8."""
    logits = np.tile(np.array([5, 4, 3, 2, 1, 0], dtype=np.float32), (8, 1))
    logits[:2] = np.array([0, 1, 2, 3, 4, 5])
    assert made(6, logits).top5 == 0.75
    assert made(5).top5 is None


def test_sound_report():
    """50 +- 100 * 2.364624 / sqrt(28) = 44.69."""
    text = made().report()
    for part in (
        "arelu in mnist_conv: tests.tiny_images:digits (task tiny), sgd lr 0.02, protocol sound, seed 0\n",
        "test accuracy  50.00 % ± 44.69 (n = 8), 95 % interval over the test images",
        "chance         33.33 %",
        "the same classes occur in training",
        "epoch 2 of 3",
        "1.2 s",
        "http://127.0.0.1:5000/#/experiments/7/runs/abc?workflowType=machine_learning",
        "use it         python -m arelu_meta.predict abc IMAGES...\n",
    ):
        assert part in text
    for part in ("top 5", "published", "not verified"):
        assert part not in text


def test_a_network_that_was_not_stored_is_not_said_to_answer_images():
    assert "predict" not in made(stored=False).report()


def test_photographs_of_ones_own_have_no_publisher_to_be_held_against():
    assert "publisher" in made(data={"dataset": "mnist"}, verified=False).report()
    assert "publisher" not in made(data={"dataset": "my_photos/"}, verified=False).report()


def test_paper_report_says_where_the_epoch_was_chosen():
    text = made(6, evaluation={"protocol": "paper"}, verified=False).report()
    for part in (
        "best test epoch",
        "the epoch is chosen on the test images themselves",
        "top 5",
        "16.67 %",
        "not verified",
    ):
        assert part in text
    assert "test accuracy" not in text


def test_classes_worst_first_with_their_mistakes():
    """c: 1 of 4, taken for a twice; a: 1 of 2, once for b; b: 2 of 2."""
    rows = [line.split() for line in made().report().split("\n\n")[1].splitlines()]
    assert [row for row in rows if row[0] in "abc"] == [
        ["c", "25.0", "4", "a", "(2)"],
        ["a", "50.0", "2", "b", "(1)"],
        ["b", "100.0", "2"],
    ]
