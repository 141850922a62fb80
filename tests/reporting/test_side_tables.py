# ruff: noqa: RUF001
import pandas as pd
import pytest

from arelu_meta.reporting.content import make_report
from arelu_meta.reporting.table import ReportTable
from tests.analysis.test_rates import REPORTS, shipped
from tests.reporting.sweeps import sweep


def titles(truth: dict[str, float], **fields: object) -> list[str]:
    (tables,) = make_report(sweep(truth, **fields)).side_tables
    return [table.title for table in tables]


def cells(table: ReportTable) -> dict[str, dict[str, str]]:
    """Texts by row and heading."""
    return {row[0].text: {head: cell.text for head, cell in zip(table.header, row, strict=True)} for row in table.rows}


def test_beyond_the_mean():
    """1, 2, 3, 4, 10 and 0, 3, 4, 5, 0 by seed: medians 3 and 3; the middle three have means of 3 and 7/3."""
    runs = pd.DataFrame(
        {
            "activation": ["relu"] * 5 + ["arelu"] * 5,
            "seed": [*range(5)] * 2,
            "test/accuracy": [1.0, 2.0, 3.0, 4.0, 10.0, 0.0, 3.0, 4.0, 5.0, 0.0],
        }
    )
    ((table,),) = make_report(sweep({"relu": 1.0}, runs=runs, margin=1.0)).side_tables
    found = cells(table)
    assert found["relu"]["median (%)"] == found["arelu"]["median (%)"] == "3.00"
    assert (found["relu"]["interquartile mean (%)"], found["arelu"]["interquartile mean (%)"]) == ("3.00", "2.33")
    assert (found["relu"]["best run (%)"], found["arelu"]["best run (%)"]) == ("10.00", "5.00")
    assert found["arelu"]["ahead of relu (%)"] == "60 [15, 95]"  # three of five, as binomial tables have it
    assert found["relu"]["ahead of relu (%)"] == "–"
    assert found["relu"]["finite (%)"] == "100 [48, 100]"


def test_learned_is_said_only_where_the_result_of_guessing_is_known():
    """An arm at 10 % may be guessing among ten classes, or be good at something hard."""
    truth = {"relu": 10.0, "arelu": 80.0}
    ((known, *_),) = make_report(sweep(truth, seed_sd=0, arm_sd=0.1, chance=10.0)).side_tables
    ((unknown, *_),) = make_report(sweep(truth, seed_sd=0, arm_sd=0.1)).side_tables
    assert cells(known)["relu"]["learned (%)"] == "0 [0, 52]"  # 0.025 = (1 - p)^5
    assert cells(unknown)["relu"]["finite (%)"] == "100 [48, 100]"


@pytest.mark.parametrize("report", REPORTS, ids=[name for name, _, _ in REPORTS])
def test_settings_of_the_shipped_results(report: tuple):
    """Numbers as in tests/analysis/test_rates.py, where they are worked out."""
    (tables,) = make_report(shipped(*report)).side_tables
    change, choice, _beyond = tables
    name, axis, _ = report
    first = {
        "learning_rates": ("lr = 0.0001", "+40.57 [+31.49, +49.65]"),
        "inner_rates": ("inner_lr = 0.005", "+19.56 [+7.89, +31.24]"),
        "glyphs_rates": ("inner_lr = 0.005", "+19.45 [+13.10, +25.79]"),
    }[name]
    assert change.title == "arelu over relu at a shared setting and at their own"
    assert (change.rows[0][0].text, cells(change)[first[0]]["change (points)"]) == first
    assert cells(change)[first[0]]["verdict"] == "different"
    assert choice.title == f"the choice of a setting, each arm at its best {axis}"
    nested = {"learning_rates": "97.55", "inner_rates": "83.94", "glyphs_rates": "72.13"}[name]
    assert cells(choice)["arelu"]["seed left out (%)"].startswith(nested)
    assert cells(choice)["relu"]["left out, to relu (points)"] == "–"


def test_controls_have_a_table_of_their_own():
    ((table, _beyond),) = make_report(sweep()).side_tables
    assert table.title == "arelu against its controls"
    assert [row[0].text for row in table.rows] == ["arelu_frozen", "relu_gain", "arelu_unit"]
    assert titles({"relu": 1.0, "elu": 2.0}) == ["beyond the mean"]


FINETUNED = pd.DataFrame(
    {"activation": ["arelu"], "metric": ["test/finetune_20"], "value": [76.26], "protocol": "paper", "source": "table"}
)
OTHER = {"test/finetune_5": "test/finetune_20"}


def side_tables(**fields: object) -> tuple[ReportTable, ...]:
    found = sweep({"relu": 60.0, "arelu": 80.0}, seeds=[0, 1, 2], **({"published": FINETUNED} | fields))
    found.runs["test/finetune_5"] = [10.0, 20.0, 30.0, 40.0, 40.0, float("nan")]
    (tables,) = make_report(found).side_tables
    return tables[1:]  # after the one beyond the mean


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
