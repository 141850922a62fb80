"""Findings in, report out: files for a folder or a run's artifacts, metrics for MLflow, text for the terminal."""

import math
import re
from pathlib import Path

from arelu_meta.analysis.analyse import analyse
from arelu_meta.analysis.arms import Comparison
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.settings import text
from arelu_meta.console.tables import text_table
from arelu_meta.reporting.charts import figures
from arelu_meta.reporting.content import Content, content
from arelu_meta.reporting.frame import frame, numbers_of
from arelu_meta.reporting.latex import latex
from arelu_meta.reporting.markdown import markdown
from arelu_meta.reporting.page import page

LOGGED = ("mean", "sd", "ci95_low", "ci95_high", "n")  # table.csv has more; a run's page should stay readable
LOGGED_DIFFERENCES = (
    "difference",
    "difference_ci95_low",
    "difference_ci95_high",
    "p_t",
    "p_t_holm",
    "p_permutation",
    "detectable",
)


def write(findings: Findings, folder: Path) -> list[Path]:
    """Write report.html, report.md, report.tex, the figures, runs.csv and table.csv; gives back what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    said = content(findings)
    drawn = _draw(said, folder)
    files = {
        "report.html": page(said),
        "report.md": markdown(said, drawn),
        "report.tex": latex(said, drawn),
        "runs.csv": findings.runs.to_csv(index=False),
        "table.csv": frame(said.analysis).to_csv(index=False),
    }
    for name, written in files.items():
        (folder / name).write_text(written, encoding="utf-8")
    pictures = [folder / path for png in drawn for path in (png, png.removesuffix(".png") + ".svg")]
    return [*(folder / name for name in files), *pictures]


def _draw(said: Content, folder: Path) -> dict[str, str]:
    """Draw the figures as PNG and SVG; gives back their captions by path."""
    (folder / "figures").mkdir(exist_ok=True)
    captions = {}
    for name, (figure, caption) in figures(said).items():
        for kind in ("png", "svg"):
            figure.savefig(folder / "figures" / f"{name}.{kind}", dpi=150)
        captions[f"figures/{name}.png"] = caption
    return captions


def metrics(findings: Findings) -> dict[str, float]:
    """Numbers by name for the parent run: `arelu/test/accuracy_mean`, `arelu/lr_0.01/...`, `arelu/matched/...`.

    Only numbers that exist are there: one seed has a mean and an `_n`, but no interval.
    """
    analysis = analyse(findings)
    named: dict[str, float] = {}
    for comparison in analysis.all:
        for arm in comparison.arms:
            place = _valid("/".join((arm.name, *_setting(comparison), findings.metric)))
            while f"{place}_n" in named:  # two names that differ in signs MLflow does not take
                place += "_"
            numbers = numbers_of(arm)
            for key in (*LOGGED, *LOGGED_DIFFERENCES):
                if math.isfinite(numbers[key]):
                    named[f"{place}_{key}"] = float(numbers[key])
    return named


def _valid(name: str) -> str:
    """Make a name that MLflow takes: plain signs, and a path that leads nowhere else.

    >>> _valid("./data/a.npz/../lr=1/test/accuracy")
    'data/a.npz/lr_1/test/accuracy'
    """
    plain = re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)
    return "/".join(part for part in plain.split("/") if part.strip(".")) or "_"


def _setting(comparison: Comparison) -> list[str]:
    return [
        *(f"{axis}_{text(value)}" for axis, value in comparison.setting),
        *(["matched"] if comparison.matched else []),
    ]


def summary(findings: Findings) -> str:
    """The verdict, the table and what limits them, for the terminal."""
    said = content(findings)
    lines = [said.title, *([said.banner] if said.banner else []), ""]
    for one in said.verdicts:
        about = f"{one.about}: " if one.about else ""
        lines += [f"{about}{one.sentences}", *([one.grounds] if one.grounds else []), ""]
    for part in said.tables[: len(said.tables) - len(said.analysis.fixed if said.analysis.matched else ())]:
        lines += [*([part.banner] if part.banner else []), part.title]
        lines += [text_table(part.table.header, [[cell.text for cell in row] for row in part.table.rows]), ""]
    lines += [f"note: {note}" for note in said.notes]
    lines += [f"missing: {cell}" for cell in said.missing]
    return "\n".join(lines).rstrip()
