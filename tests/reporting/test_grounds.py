"""What a verdict rests on is said with it: budget, settings, and choices that were none or stopped at the edge."""

from dataclasses import replace

import pandas as pd

from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.content import content
from tests.reporting.sweeps import sweep


def grounds(findings: Findings) -> str:
    (one,) = content(findings).verdicts
    return one.grounds


def test_budget_and_setting_are_named():
    text = grounds(sweep({"relu": 60.0, "arelu": 75.0}, lrs=(0.01, 0.1), budget=0.1))
    assert "(each arm at its best lr, n = 5 seeds, protocol sound, only 10 % of the full training" in text


def test_a_choice_at_the_edge_is_part_of_the_verdict():
    """Whoever chose the largest rate offered might have done better with a larger one: no verdict without that."""
    arms, rates = {"relu": 60.0, "arelu": 75.0}, (0.001, 0.01, 0.1)
    inside = grounds(sweep(arms, lrs=rates, best_lr={"relu": 0.01, "arelu": 0.01}, arm_sd=0.3))
    assert "edge" not in inside
    one = grounds(sweep(arms, lrs=rates, best_lr={"relu": 0.1, "arelu": 0.01}, arm_sd=0.3))
    assert " But relu (lr = 0.1) is best at the edge of what was tried: a wider grid may decide otherwise." in one
    both = grounds(sweep(arms, lrs=rates, best_lr={"relu": 0.1, "arelu": 0.001}, arm_sd=0.3))
    assert " But relu (lr = 0.1) and arelu (lr = 0.001) are best at the edge of what was tried" in both


def test_a_single_setting_is_no_choice():
    """Several rates under one optimizer, one under the other: what was not chosen is not called chosen."""
    arms = {"relu": 60.0, "arelu": 75.0}
    wide, narrow = sweep(arms, lrs=(0.001, 0.01, 0.1), arm_sd=0.3), sweep(arms, lrs=(0.01,), arm_sd=0.3)
    runs = pd.concat([wide.runs.assign(optimizer="sgd"), narrow.runs.assign(optimizer="adam")], ignore_index=True)
    said = content(replace(wide, runs=runs, axes=("activation", "optimizer", "lr"))).verdicts
    texts = {one.about.split(";")[0]: one.grounds for one in said}
    assert "no other setting" not in texts["optimizer = sgd"]
    assert " But relu and arelu had no other setting to choose." in texts["optimizer = adam"]


def test_a_design_that_could_find_nothing():
    """Two seeds that differ by tens of points: the limit lies above 100, where no accuracy can be."""
    findings = sweep({"relu": 60.0, "arelu": 50.0, "arelu_frozen": 55.0}, seeds=[0, 1], arm_sd=30.0)
    (comparison,) = content(findings).analysis.judged
    assert comparison.arm("arelu").detectable > 100
    assert " Not even a true difference of 100 points would have been found with 80 % power: " in grounds(findings)
