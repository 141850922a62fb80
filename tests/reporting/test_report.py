import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from arelu_meta.reporting import report
from tests.reporting.sweeps import sweep


def test_writes_everything(tmp_path: Path):
    findings = sweep(steps=3, episodes=20)
    paths = report.write(findings, tmp_path / "new" / "folder")
    names = {str(path.relative_to(tmp_path / "new" / "folder")) for path in paths}
    assert names == {
        "report.html",
        "report.md",
        "report.tex",
        "runs.csv",
        "table.csv",
        "figures/arms.png",
        "figures/arms.svg",
        "figures/curve-validation-accuracy.png",
        "figures/curve-validation-accuracy.svg",
    }
    assert all(path.stat().st_size > 0 for path in paths)
    again = pd.read_csv(tmp_path / "new" / "folder" / "runs.csv")
    assert again["test/accuracy"].tolist() == pytest.approx(findings.runs["test/accuracy"].tolist())
    assert len(pd.read_csv(tmp_path / "new" / "folder" / "table.csv")) == 7


def test_the_same_findings_give_the_same_report(tmp_path: Path):
    for name in ("a", "b"):
        report.write(sweep({"relu": 60.0, "arelu": 70.0}), tmp_path / name)
    for file in ("report.html", "report.md", "report.tex", "table.csv"):
        assert (tmp_path / "a" / file).read_text() == (tmp_path / "b" / file).read_text()


def test_metrics_rank_arms():
    findings = sweep({"relu": 60.0, "arelu": 70.0})
    found = report.metrics(findings)
    values = findings.runs[findings.runs["activation"] == "arelu"]["test/accuracy"]
    assert found["arelu/test/accuracy_mean"] == pytest.approx(values.mean())
    assert found["arelu/test/accuracy_ci95_low"] < values.mean() < found["arelu/test/accuracy_ci95_high"]
    assert found["arelu/test/accuracy_n"] == 5
    assert 0 <= found["arelu/test/accuracy_p_t_holm"] <= 1
    assert "relu/test/accuracy_difference" not in found
    assert len(found) == 5 + 12  # of the baseline and of the other arm
    assert all(isinstance(value, float) for value in found.values())


def test_metric_names_are_valid_for_mlflow():
    from mlflow.utils.validation import _validate_metric_name

    paths = {"/abs/x.npz": 60.0, "./x": 61.0, "../x": 62.0, "a//b": 63.0, "..": 64.0}
    findings = sweep({"relu": 60.0, "a(b=0.25)": 70.0, **paths}, lrs=(0.01, 0.1))
    names = report.metrics(findings)
    for name in names:
        _validate_metric_name(name)
    assert "a_b_0.25_/matched/test/accuracy_mean" in names
    assert "a_b_0.25_/lr_0.01/test/accuracy_mean" in names
    assert sum(name.endswith("_mean") for name in names) == 7 * 3  # none lost: two rates and the matched view


def test_arms_that_look_alike_keep_their_metrics():
    """`a(b)` and `a[b]` would have one name in MLflow."""
    found = report.metrics(sweep({"relu": 60.0, "a(b)": 70.0, "a[b]": 80.0}, seed_sd=0, arm_sd=0))
    means = {name: value for name, value in found.items() if name.endswith("_mean") and name.startswith("a_")}
    assert sorted(means.values()) == [70.0, 80.0]


def test_one_seed_has_no_interval_among_the_metrics():
    found = report.metrics(sweep({"relu": 60.0, "arelu": 70.0}, seeds=[0]))
    assert {name.rpartition("accuracy_")[2] for name in found if name.startswith("relu/")} == {"mean", "n"}


def test_summary_for_the_terminal():
    text = report.summary(sweep(budget=0.1, lrs=(0.01, 0.1), missing=("elu, seed 3: diverged",)))
    assert text.splitlines()[0] == "Which activation adapts fastest? (simulated)"
    assert "each arm at its best lr" in text
    assert "lr = 0.01, n" not in text  # the tables at fixed rates are in the files
    assert "missing: elu, seed 3: diverged" in text
    assert len(re.findall("Reduced budget", text)) == 3
    assert not text.endswith("\n")


def test_nothing_finished(tmp_path: Path):
    findings = replace(sweep(), runs=pd.DataFrame())
    assert "no run has finished" in report.summary(findings)
    assert report.metrics(findings) == {}
    assert (tmp_path / "report.html") in report.write(findings, tmp_path)
