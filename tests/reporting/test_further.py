"""Further measures: means by hand, published figures under the name they were published with, nothing where none is."""

# ruff: noqa: RUF001
import pandas as pd

from arelu_meta.analysis.findings import Findings
from arelu_meta.reporting.content import content
from arelu_meta.reporting.markdown import markdown
from arelu_meta.reporting.page import page
from tests.reporting.sweeps import sweep

PUBLISHED = pd.DataFrame(
    {"activation": ["arelu"], "metric": ["test/finetune_20"], "value": [76.26], "protocol": "paper", "source": "table"}
)


def findings(**fields: object) -> Findings:
    found = sweep({"relu": 60.0, "arelu": 80.0}, seeds=[0, 1, 2], **({"published": PUBLISHED} | fields))
    found.runs["test/finetune_5"] = [10.0, 20.0, 30.0, 40.0, 40.0, float("nan")]
    return found


def test_means_intervals_and_published_figures():
    """10, 20, 30: mean 20, sd 10, half-width 4.3027 * 10 / sqrt(3) = 24.84; a lost seed leaves n = 2 of 40."""
    said = content(findings(further={"test/finetune_5": "test/finetune_20"}))
    (part,) = said.further
    assert part.title == "further measures of the same runs"
    assert part.table.header == ("activation", "test/finetune_5", "published test/finetune_20")
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in part.table.rows}
    assert rows == {"arelu": ["40.00 [40.00, 40.00]", "76.26"], "relu": ["20.00 [−4.84, 44.84]", "–"]}
    assert part in said.tables


def test_it_is_read_in_every_format():
    said = content(findings(further={"test/finetune_5": "test/finetune_20"}))
    assert "| arelu | 40.00 [40.00, 40.00] | 76.26 |" in markdown(said, {})
    assert "further measures of the same runs" in str(page(said))


def test_nothing_asked_or_nothing_logged():
    assert content(findings()).further == (None,)
    assert content(findings(further={"test/unheard_of": "test/unheard_of"})).further == (None,)


def test_a_column_per_source():
    two = pd.concat([PUBLISHED, PUBLISHED.assign(value=70.0, protocol="best epoch")])
    (part,) = content(findings(further={"test/finetune_5": "test/finetune_20"}, published=two)).further
    headings = ("published test/finetune_20 (1)", "published test/finetune_20 (2)")
    assert part.table.header == ("activation", "test/finetune_5", *headings)
    assert part.legend[1:] == (f"{headings[0]}: paper, table", f"{headings[1]}: best epoch, table")
