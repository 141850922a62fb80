"""Findings in, report out: files for a folder or a run's artifacts, metrics for MLflow, text for the terminal."""

import math
import re
from pathlib import Path

from arelu_meta.reporting.analysis import analyse
from arelu_meta.reporting.arms import Comparison
from arelu_meta.reporting.content import content
from arelu_meta.reporting.findings import Findings
from arelu_meta.reporting.frame import frame, numbers_of
from arelu_meta.reporting.latex import latex
from arelu_meta.reporting.markdown import markdown
from arelu_meta.reporting.settings import text
from arelu_meta.tables import text_table


def write(findings: Findings, folder: Path) -> list[Path]:
    """Write report.md, report.tex, runs.csv and table.csv into a folder; gives back what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    said = content(findings)
    files = {
        "report.md": markdown(said, {}),
        "report.tex": latex(said, {}),
        "runs.csv": findings.runs.to_csv(index=False),
        "table.csv": frame(said.analysis).to_csv(index=False),
    }
    for name, written in files.items():
        (folder / name).write_text(written, encoding="utf-8")
    return [folder / name for name in files]


def metrics(findings: Findings) -> dict[str, float]:
    """Numbers by name for the parent run: `arelu/test/accuracy_mean`, `arelu/lr_0.01/...`, `arelu/matched/...`.

    Only numbers that exist are there: one seed has a mean and an `_n`, but no interval.
    """
    analysis = analyse(findings)
    named: dict[str, float] = {}
    for comparison in analysis.all:
        for arm in comparison.arms:
            place = "/".join(_valid(part) for part in (arm.name, *_setting(comparison), findings.metric))
            for key, value in numbers_of(arm).items():
                if math.isfinite(value):
                    named[f"{place}_{key}"] = value
    return named


def _valid(name: str) -> str:
    return re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)


def _setting(comparison: Comparison) -> list[str]:
    return [
        *(f"{axis}_{text(value)}" for axis, value in comparison.setting),
        *(["matched"] if comparison.matched else []),
    ]


def summary(findings: Findings) -> str:
    """The verdict, the table and what limits them, for the terminal."""
    said = content(findings)
    lines = [said.title, *([said.banner] if said.banner else []), ""]
    for title, sentences in said.verdicts:
        lines += [f"{title}: {sentences}" if title else sentences, ""]
    for part in said.parts[: len(said.verdicts)]:  # the judged ones; the files hold the rest
        lines += [*([part.banner] if part.banner else []), part.title]
        lines += [text_table(part.table.header, [[cell.text for cell in row] for row in part.table.rows]), ""]
    lines += [f"note: {note}" for note in said.notes]
    lines += [f"missing: {cell}" for cell in said.missing]
    return "\n".join(lines).rstrip()
