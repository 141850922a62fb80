# ruff: noqa: RUF001
from dataclasses import replace

import pandas as pd
import pytest

from arelu_meta.analysis.arms import analyse
from arelu_meta.reporting.numbers import NumberFormat
from arelu_meta.reporting.table import ReportTable, comparison_table, numbers_frame
from tests.reporting.sweeps import sweep

PUBLISHED = pd.DataFrame(
    {
        "activation": ["relu", "arelu", "arelu"],
        "metric": ["test/accuracy", "test/accuracy", "best batch"],
        "value": [70.0, 92.5, 95.0],
        "protocol": "paper",
        "source": ["table 4", "table 4", "log"],
    }
)


def laid_out(**fields: object) -> ReportTable:
    findings = sweep(**fields)
    return comparison_table(findings, analyse(findings).primary[0], NumberFormat(2, "%"))


def column(found: ReportTable, heading: str) -> dict[str, str]:
    place = found.header.index(heading)
    return {row[0].text: row[place].text for row in found.rows}


def test_roles_and_detectable_differences():
    found = laid_out(truth={"relu": 60.0, "arelu": 80.0, "elu": 70.0, "arelu_unit": 60.0})
    roles = column(found, "role")
    assert roles["relu"] == "baseline"
    assert roles["arelu_unit"] == "control: lacks gain"
    assert roles["elu"] == ""
    marks = column(found, "p")
    assert marks["arelu"].endswith(" *")
    assert not marks["arelu_unit"].endswith(" *")
    assert marks["relu"] == "–"


def test_published_figures_of_another_metric_stand_beside_it_alone():
    findings = sweep(published=PUBLISHED, other_metrics={"best": "best batch"})
    found = comparison_table(findings, analyse(findings).primary[0], NumberFormat(2, "%"))
    assert column(found, "published 2")["arelu"] == "95.00"
    findings = replace(findings, runs=findings.runs.assign(best=90.0))
    found = comparison_table(findings, analyse(findings).primary[0], NumberFormat(2, "%"))
    assert column(found, "published")["arelu"] == "92.50"


def test_a_column_per_source_never_mixes_protocols():
    found = laid_out(published=PUBLISHED)
    assert column(found, "published 1") | {"elu": "–"} == column(found, "published 1")
    assert (column(found, "published 1")["arelu"], column(found, "published 2")["arelu"]) == ("92.50", "95.00")
    assert column(found, "published 2")["relu"] == "–"
    assert [one.meaning for one in found.columns[-2:]] == ["test/accuracy, paper, table 4", "best batch, paper, log"]


def test_rates_of_the_matched_view():
    arms = {"relu": 70.0, "arelu": 70.0}
    found = laid_out(truth=arms, lrs=(0.001, 0.01, 0.1, 1.0), best_lr={"relu": 0.1, "arelu": 0.001}, arm_sd=0.1)
    assert column(found, "best lr") == {"relu": "0.1", "arelu": "0.001 (edge)"}
    assert column(found, "decades") == {"relu": "+0.0", "arelu": "−2.0"}


def test_columns_without_content_are_left_out():
    header = laid_out(truth={"arelu": 1.0, "elu": 2.0}, controls={}).header
    assert header == ("activation", "n", "mean (%)", "sd")


def test_a_row_per_arm_and_setting():
    findings = sweep({"relu": 60.0, "arelu": 70.0}, lrs=(0.01, 0.1))
    table = numbers_frame(analyse(findings))
    assert table.groupby("view").size().to_dict() == {"fixed": 4, "matched": 2}
    at = table[(table["view"] == "fixed") & (table["lr"] == 0.1)].set_index("activation")
    runs = findings.runs[findings.runs["lr"] == 0.1].pivot(index="seed", columns="activation", values="test/accuracy")
    assert at.at["arelu", "mean"] == pytest.approx(runs["arelu"].mean())
    assert at.at["arelu", "difference"] == pytest.approx((runs["arelu"] - runs["relu"]).mean())
    assert at.at["arelu", "seconds"] == 300.0
    assert pd.isna(at.at["relu", "difference"])
    assert at.at["relu", "role"] == "baseline"


def test_verdicts_stand_in_the_table():
    """identical to relu: no number can be given; elu differs, same is within ten points."""
    findings = sweep({"relu": 60.0, "same": 60.0, "elu": 90.0}, arm_sd=0.5, margin=10.0)
    copies = findings.runs[findings.runs["activation"] == "relu"].assign(activation="copy")
    found = comparison_table(
        findings, analyse(replace(findings, runs=pd.concat([findings.runs, copies]))).primary[0], NumberFormat(2, "%")
    )
    assert column(found, "verdict") == {"relu": "", "same": "equivalent", "elu": "different", "copy": "identical"}
    assert column(found, "to relu (points)")["copy"] == "identical"
    assert column(found, "p")["copy"] == column(found, "p perm.")["copy"] == "–"
    assert "learned" not in found.header


def test_failed_trainings_are_counted():
    findings = sweep({"relu": 60.0, "arelu": 80.0}, chance=20.0)
    runs = findings.runs.copy()
    runs.loc[(runs["activation"] == "arelu") & (runs["seed"] < 2), "test/accuracy"] = 20.0
    analysis = analyse(replace(findings, runs=runs))
    found = comparison_table(findings, analysis.primary[0], NumberFormat(2, "%"))
    assert column(found, "learned") == {"arelu": "3 of 5", "relu": "5 of 5"}
    assert column(found, "verdict")["arelu"] == "undecided: trainings fail"
    numbers = numbers_frame(analysis).set_index("activation")
    assert numbers.loc["arelu", ["trainings", "learned", "n", "verdict"]].to_list() == [
        5,
        3,
        3,
        "undecided: trainings fail",
    ]
