import shutil
import subprocess
from pathlib import Path

import pytest

from arelu_meta.reporting import report
from arelu_meta.reporting.content import content
from arelu_meta.reporting.latex import escape, latex
from tests.reporting.sweeps import sweep


def test_signs_of_latex_are_escaped():
    assert escape("50 % of a_b & {c} #1 $x^2 ~ \\d") == (
        r"50 \% of a\_b \& \{c\} \#1 \$x\textasciicircum{}2 \textasciitilde{} \textbackslash{}d"
    )
    assert escape("−1.5 – é 漢") == "$-$1.5 -- é ?"  # noqa: RUF001


def test_every_row_has_every_column():
    said = content(sweep())
    text = latex(said, {})
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    first = rows[: 1 + len(said.parts[0].table.rows)]
    assert {line.replace(r"\&", "").count("&") for line in first} == {len(said.parts[0].table.header) - 1}
    assert text.count(r"\begin{tabular}") == text.count(r"\bottomrule") == 2
    assert r"arelu\_frozen" in text
    assert "arelu_frozen" not in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_compiles(tmp_path: Path):
    findings = sweep(
        {"relu": 60.0, "arelu": 70.0, "a_b&c%$#{}~^\\": 65.0, "[x]": 50.0}, steps=3, budget=0.5, missing=("a_b: é 漢",)
    )
    report.write(findings, tmp_path)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "report.pdf").is_file()
