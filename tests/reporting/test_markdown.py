import re
import shutil
import subprocess
from pathlib import Path

import pytest

from arelu_meta.reporting.content import make_report
from arelu_meta.reporting.markdown import escape_markdown, latex_tables, markdown_note, markdown_report
from arelu_meta.reporting.report import write_report
from arelu_meta.reporting.table import ReportTable, TableCell, TableColumn
from tests.reporting.sweeps import sweep


def test_a_table_of_as_many_cells_in_every_line():
    report = make_report(
        sweep({"relu": 60.0, "a|b": 70.0}, question="is [this](http://x) *it*?", missing=("pau: `NaN`",))
    )
    text = markdown_report(report, {"figures/arms.svg": "All arms"})
    whole = text[text.index("| activation") : text.index("n: seeds")]
    cells = {line.replace("\\|", "").count("|") for line in whole.splitlines() if line}
    assert cells == {len(report.main_tables[0].header) + 1}
    assert "a\\|b" in text
    assert "[this]\\(http://x) \\*it\\*?" in text
    assert "![All arms](figures/arms.svg)" in text
    assert "- pau: \\`NaN\\`" in text
    assert report.verdicts[0].sentences.replace("|", "\\|").replace("<", "&lt;") in text


def test_a_line_stays_a_line():
    assert escape_markdown("two\nlines") == "two lines"


def test_budget_over_the_table():
    text = markdown_report(make_report(sweep({"relu": 60.0, "arelu": 70.0}, budget=0.5)), {})
    assert (
        text.count("> **Reduced budget: every run had 50 % of the full training") == 3
    )  # at the top and over two tables


def test_signs_of_latex_are_escaped():
    table = ReportTable("50 % of a_b & {c}", (TableColumn("#1 $x^2 ~ \\d", "", (TableCell("−1.5 –", 0.0),)),))  # noqa: RUF001
    text = latex_tables([table])
    assert r"\caption{50 \% of a\_b \& \{c\}.}" in text
    assert r"\#1 \$x\textasciicircum{}2 \textasciitilde{} \textbackslash{}d \\" in text
    assert r"$-$1.5 -- \\" in text


def test_every_row_has_every_column():
    report = make_report(sweep())
    text = latex_tables(report.primary_tables)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    first = rows[: 1 + len(report.main_tables[0].rows)]
    assert {line.replace(r"\&", "").count("&") for line in first} == {len(report.main_tables[0].header) - 1}
    assert text.count(r"\begin{tabular}") == text.count(r"\bottomrule") == 3
    assert r"arelu\_frozen" in text
    assert "arelu_frozen" not in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_compiles(tmp_path: Path):
    findings = sweep(
        {"relu": 60.0, "arelu": 70.0, "a_b&c%$#{}~^\\": 65.0, "[x]": 50.0}, steps=3, budget=0.5, missing=("a_b:",)
    )
    report = make_report(findings)
    tables = latex_tables((*report.primary_tables, *report.secondary_tables), report.banner)
    head = "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{booktabs}\\begin{document}\n"
    (tmp_path / "paper.tex").write_text(f"{head}{tables}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").is_file()


def test_a_note_has_verdict_and_tables_and_fits():
    """Where it is too long, notes go first, then tables; the verdict and the command stay."""
    report = make_report(sweep())
    whole = markdown_note(report, "python -m arelu_meta.compare maml_digits")
    verdict = escape_markdown(report.verdicts[0].sentences)
    assert whole.startswith(f"**Which activation adapts fastest? (simulated): {verdict}**\n")
    assert "| arelu |" in whole
    assert whole.endswith("```\npython -m arelu_meta.compare maml_digits\n```")
    without_notes = markdown_note(report, "python", most=len(whole) - 100)
    assert "| arelu |" in without_notes
    assert not any(f"- {escape_markdown(note)}" in without_notes for note in report.notes)
    short = markdown_note(report, "python", most=1200)
    assert "| arelu |" not in short
    assert report.verdicts[0].sentences.partition(",")[0] in short
    assert len(markdown_note(report, "python", most=50)) == 50


@pytest.mark.parametrize("swept", [{}, {"lrs": [0.1, 0.01]}])
def test_a_note_shows_the_figures_that_the_report_has(swept: dict, tmp_path: Path):
    report = make_report(sweep(**swept))
    assert "get-artifact" not in markdown_note(report)
    named = re.findall(r"\(get-artifact\?path=report/(\S+)&run_uuid=0123\)", markdown_note(report, run_id="0123"))
    written = {path.relative_to(tmp_path).as_posix() for path in write_report(report, tmp_path)}
    assert named
    assert set(named) == {name for name in written if name.startswith("figures/arms")}


def test_a_note_links_the_page_of_the_report():
    report = make_report(sweep())
    link = "[report/report.html](#/experiments/7/runs/0123/artifacts/report/report.html?workflowType=machine_learning)"
    assert link in markdown_note(report, run_id="0123", experiment_id="7")
    assert "The whole report is report/report.html among" in markdown_note(report, run_id="0123")
