import math
from dataclasses import replace

import pytest

from arelu_meta.reporting.charts import figures
from arelu_meta.reporting.content import content
from tests.reporting.sweeps import sweep


def test_dots_are_the_seeds():
    findings = sweep({"relu": 60.0, "arelu": 70.0})
    figure, _ = figures(content(findings))["arms"]
    left, right = figure.axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["arelu (n = 5)", "relu (n = 5)"]
    table = findings.runs.pivot(index="seed", columns="activation", values="test/accuracy")
    drawn = [line.get_xdata() for line in left.lines if line.get_marker() == "o"]
    assert list(drawn[0]) == pytest.approx(table["arelu"].tolist())
    differences = [line.get_xdata() for line in right.lines if line.get_marker() == "o"]
    assert list(differences[0]) == pytest.approx((table["arelu"] - table["relu"]).tolist())
    assert left.get_xlabel() == "test/accuracy (%)"
    assert right.get_xlabel() == "difference to relu, seed by seed (points)"
    means = [line.get_xdata()[0] for line in left.lines if line.get_marker() == "D"]
    assert means == pytest.approx([table["arelu"].mean(), table["relu"].mean()])


def test_lines_say_what_they_rest_on():
    found = figures(content(sweep(steps=4, lrs=(0.001, 0.01, 0.1))))
    assert list(found) == ["arms", "curve-validation-accuracy", "over-lr"]
    figure, _ = found["over-lr"]
    assert figure.axes[0].get_xscale() == "log"
    assert "n = 5 seeds" in figure.axes[0].get_title()


def test_arms_behind_are_grey_and_counted():
    arms = {"relu": 50.0} | {f"a{number}": 60.0 for number in range(9)}
    figure, _ = figures(content(sweep(arms, steps=3)))["curve-validation-accuracy"]
    assert "3 more arms in grey" in figure.axes[0].get_title()
    assert len(figure.axes[0].get_legend().get_texts()) == 7


def test_signs_that_matplotlib_takes_for_its_own():
    """Two dollar signs are no mathematics, and a name that begins with _ is in the legend all the same."""
    findings = replace(sweep({"relu": 50.0, "_mine:A": 60.0}, steps=3), title="from $100 % to $200 #")
    found = figures(content(findings))
    for figure, _ in found.values():
        figure.canvas.draw()
    legend = found["curve-validation-accuracy"][0].axes[0].get_legend()
    assert sorted(text.get_text() for text in legend.get_texts()) == ["_mine:A", "relu"]


def test_an_arm_without_results():
    findings = sweep({"relu": 60.0, "arelu": 70.0, "pau": 1.0})
    runs = findings.runs.copy()
    runs.loc[runs["activation"] == "pau", "test/accuracy"] = math.nan
    figure, _ = figures(content(replace(findings, runs=runs)))["arms"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["no result"]
