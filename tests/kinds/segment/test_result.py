from typing import Any

import pytest
from torch import nn

from arelu_meta.kinds.segment.result import SegmentResult
from tests.supervised_runs import segment_spec


def made(**given: Any) -> SegmentResult:
    sections = {name: given.pop(name) for name in ("evaluation", "volumes") if name in given}
    values = {
        "spec": segment_spec(**sections),
        "network": nn.Identity(),
        "patients": {"ann": 0.9, "bob": 0.6, "cat": 0.3},
        "slices": {"ann": 30, "bob": 4, "cat": 1},
        "held_out": "groups",
        "verified": True,
        "selected_epoch": 1,
        "curves": {},
        "seconds": 3.0,
        "run_id": "abc",
        "experiment_id": "7",
        "tracking_uri": "http://mlflow.example:5000",
    }
    return SegmentResult(**{**values, **given})


def test_patients_count_alike_whatever_their_slices():
    assert made().dice == pytest.approx((0.9 + 0.6 + 0.3) / 3)


def test_sound_report():
    text = made().report()
    for part in (
        "arelu in unet: tests.tiny_images:discs (task tiny), adam lr 0.01, protocol sound, seed 0\n",
        "test Dice   60.00 %, mean over 3 patients' volumes",
        "no patient or writer of the test occurs in training",
        "epoch 1 of 3",
        "http://mlflow.example:5000/#/experiments/7/runs/abc?workflowType=machine_learning",
        "python -m arelu_meta.predict abc IMAGES... --output DIR\n",
    ):
        assert part in text
    assert "not verified" not in text
    rows = [line.split() for line in text.split("\n\n")[1].splitlines()]
    assert [row for row in rows if row[0] in made().patients] == [
        ["ann", "90.00", "30"],
        ["bob", "60.00", "4"],
        ["cat", "30.00", "1"],
    ]


def test_what_is_judged_is_said():
    text = made(volumes={"largest_component": True}).report()
    assert "60.00 %, mean over 3 patients' volumes, each prediction cut to its largest part\n" in text


def test_paper_report():
    text = made(evaluation={"protocol": "paper"}, verified=False).report()
    assert "best test epoch" in text
    assert "test Dice" not in text
    assert "not verified" in text
