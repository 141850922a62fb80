# ruff: noqa: RUF001
from dataclasses import replace

import pandas as pd
import pytest

from arelu_meta.analysis.arms import analyse
from arelu_meta.reporting.content import make_report
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


def test_controls_have_a_table_of_their_own():
    ((table,),) = make_report(sweep()).side_tables
    assert table.title == "arelu against its controls"
    assert [row[0].text for row in table.rows] == ["arelu_frozen", "relu_gain", "arelu_unit"]
    assert make_report(sweep({"relu": 1.0, "elu": 2.0})).side_tables == ((),)


FINETUNED = pd.DataFrame(
    {"activation": ["arelu"], "metric": ["test/finetune_20"], "value": [76.26], "protocol": "paper", "source": "table"}
)
OTHER = {"test/finetune_5": "test/finetune_20"}


def side_tables(**fields: object) -> tuple[ReportTable, ...]:
    found = sweep({"relu": 60.0, "arelu": 80.0}, seeds=[0, 1, 2], **({"published": FINETUNED} | fields))
    found.runs["test/finetune_5"] = [10.0, 20.0, 30.0, 40.0, 40.0, float("nan")]
    (tables,) = make_report(found).side_tables
    return tables


def test_other_metrics_with_intervals_and_published_figures():
    """10, 20, 30: mean 20, sd 10, half-width 4.3027 * 10 / sqrt(3) = 24.84; a lost seed leaves n = 2 of 40."""
    (table,) = side_tables(other_metrics=OTHER)
    assert table.title == "further measures of the same runs"
    assert table.header == ("activation", "test/finetune_5", "published test/finetune_20")
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows == {"arelu": ["40.00 [40.00, 40.00]", "76.26"], "relu": ["20.00 [−4.84, 44.84]", "–"]}


def test_no_other_metric_asked_for_or_logged():
    assert side_tables() == ()
    assert side_tables(other_metrics={"test/unheard_of": "test/unheard_of"}) == ()


def test_other_metrics_have_a_column_per_source():
    two = pd.concat([FINETUNED, FINETUNED.assign(value=70.0, protocol="best epoch")])
    (table,) = side_tables(other_metrics=OTHER, published=two)
    headings = ("published test/finetune_20 (1)", "published test/finetune_20 (2)")
    assert table.header == ("activation", "test/finetune_5", *headings)
    assert table.legend[1:] == (f"{headings[0]}: paper, table", f"{headings[1]}: best epoch, table")


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
