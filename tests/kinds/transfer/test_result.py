import math
from typing import Any

import pytest
from torch import nn

from arelu_meta.kinds.transfer.result import TransferResult
from tests.supervised_runs import transfer_spec
from tests.tiny_images import DIGITS, NEGATIVE

CURVES = {
    "pretrain": [(1, 0.9), (2, 0.95)],
    "scratch": [(1, 0.2), (2, 0.6), (3, 0.5)],
    "finetune": [(1, 0.7), (2, 0.6), (3, 0.65)],
}


def made(protocol: str = "sound", **given: Any) -> TransferResult:
    spec = transfer_spec(evaluation={"protocol": protocol}, training={"epochs": 3}, report_epochs=[1, 2, 3])
    values = {
        "spec": spec,
        "network": nn.Identity(),
        "untuned": 0.4,
        "curves": CURVES,
        "n": 100,
        "verified": True,
        "seconds": 2.0,
        "run_id": "abc",
        "experiment_id": "7",
        "tracking_uri": "sqlite:///mlflow.db",
    }
    return TransferResult(**{**values, **given})


def means(result: TransferResult) -> dict[str, float]:
    return {setting: estimate.mean for setting, estimate in result.rows().items()}


def test_sound_rows_are_those_after_so_many_epochs():
    wanted = {"no_pretrain": 0.5, "no_finetune": 0.4, "finetune_1": 0.7, "finetune_2": 0.6, "finetune_3": 0.65}
    assert means(made()) == wanted


def test_paper_rows_are_the_best_so_far():
    wanted = {"no_pretrain": 0.6, "no_finetune": 0.4, "finetune_1": 0.7, "finetune_2": 0.7, "finetune_3": 0.7}
    assert means(made("paper")) == wanted


def test_wilson_interval_of_a_row():
    """0.5 of 100 with z^2 = 3.841459: half-width z sqrt(0.25 / n + z^2 / 4 n^2) / (1 + z^2 / n)."""
    row, square = made().rows()["no_pretrain"], 3.841459
    half = math.sqrt(square * (0.25 / 100 + square / 40000)) / (1 + square / 100)
    assert (row.low, row.high) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-5)
    assert row.n == 100


def test_a_stage_that_was_not_run_has_no_number():
    assert math.isnan(means(made(curves={}))["no_pretrain"])


def test_report():
    text = made().report()
    for part in (
        f"arelu in mnist_conv: {DIGITS} to {NEGATIVE}, fine-tuned with sgd lr 0.01, seed 0\n",
        "no pretrain  50.00 % ± 9.62 (n = 100)",
        "finetune 2   60.00 %",
        "nothing is selected on the test images",
        "2.0 s",
        "http://127.0.0.1:5000/#/experiments/7/runs/abc?workflowType=machine_learning",
    ):
        assert part in text
    assert "not verified" not in text
    paper = made("paper", verified=False).report()
    assert "all training images, the best epoch so far on the test images" in paper
    assert "not verified" in paper
