from arelu_meta.reporting.content import content
from arelu_meta.reporting.markdown import escape, markdown
from tests.reporting.sweeps import sweep


def test_a_table_of_as_many_cells_in_every_line():
    said = content(sweep({"relu": 60.0, "a|b": 70.0}, question="is [this](http://x) *it*?", missing=("pau: `NaN`",)))
    text = markdown(said, {"figures/arms.png": "All arms"})
    whole = text[text.index("| activation") : text.index("n: seeds")]
    cells = {line.replace("\\|", "").count("|") for line in whole.splitlines() if line}
    assert cells == {len(said.parts[0].table.header) + 1}
    assert "a\\|b" in text
    assert "[this]\\(http://x) \\*it\\*?" in text
    assert "![All arms](figures/arms.png)" in text
    assert "- pau: \\`NaN\\`" in text
    assert said.verdicts[0].sentences.replace("|", "\\|").replace("<", "&lt;") in text


def test_a_line_stays_a_line():
    assert escape("two\nlines") == "two lines"


def test_budget_over_the_table():
    text = markdown(content(sweep({"relu": 60.0, "arelu": 70.0}, budget=0.5)), {})
    assert text.count("> **Reduced budget: every run had 50 % of the full training") == 2
