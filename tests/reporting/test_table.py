# ruff: noqa: RUF001
from dataclasses import replace

import pandas as pd

from arelu_meta.analysis.analyse import analyse
from arelu_meta.reporting.content import content
from arelu_meta.reporting.numbers import Numbers
from arelu_meta.reporting.table import Table, table
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


def laid_out(**fields: object) -> Table:
    findings = sweep(**fields)
    return table(findings, analyse(findings).judged[0], Numbers(2, "%"))


def column(found: Table, heading: str) -> dict[str, str]:
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


def test_figures_of_a_further_measure_stand_beside_it_alone():
    findings = sweep(published=PUBLISHED, further={"best": "best batch"})
    assert column(table(findings, analyse(findings).judged[0], Numbers(2, "%")), "published 2")["arelu"] == "95.00"
    findings = replace(findings, runs=findings.runs.assign(best=90.0))
    found = table(findings, analyse(findings).judged[0], Numbers(2, "%"))
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
    (part,) = content(sweep()).controls
    assert part.title == "arelu against its controls"
    assert [row[0].text for row in part.table.rows] == ["arelu_frozen", "relu_gain", "arelu_unit"]
    assert content(sweep({"relu": 1.0, "elu": 2.0})).controls == (None,)


def test_reduced_budgets_stand_over_every_table():
    said = content(sweep(lrs=(0.01, 0.1), budget=0.25))
    assert len(said.tables) == 4  # matched, its controls, and two fixed rates
    assert all("25 % of the full training" in part.banner for part in said.tables)
    assert all(part.banner == "" for part in content(replace(sweep(), budget=1.0)).tables)
