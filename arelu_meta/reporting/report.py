"""A report in files for a folder or a run's artifacts, as metrics for MLflow, as text for the terminal."""

import math
import re
from pathlib import Path

import jinja2
import numpy as np

from arelu_meta import __version__
from arelu_meta.analysis.settings import value_text
from arelu_meta.console.tables import text_table
from arelu_meta.reporting.charts import draw_figures
from arelu_meta.reporting.content import Report
from arelu_meta.reporting.markdown import latex_tables, markdown_report
from arelu_meta.reporting.series import ArmStyle
from arelu_meta.reporting.table import arm_numbers, numbers_frame

LOGGED = (  # table.csv has more; a run's page should stay readable
    *("mean", "sd", "ci95_low", "ci95_high", "n"),
    *("difference", "difference_ci95_low", "difference_ci95_high", "p_t", "p_t_corrected", "p_permutation"),
)


def _arm_class(style: ArmStyle, group: str = "") -> str:
    """Classes of an arm's line: its colour, and on the page what switches it, in a file whether it lies behind."""
    other = f"{group}-{style.number}" if group else ("" if style.in_front else "behind")
    return f"c{style.colour} {other}".rstrip() if group or style.in_front else other


def _templates() -> jinja2.Environment:
    """Templates that escape everything from outside."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters["percent"] = lambda place: f"{place:.2f}%"
    templates.filters["arm_class"] = _arm_class
    templates.filters["row_class"] = lambda style: f"c{style.colour}" if style.in_front else "rest"
    return templates


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write everything a report has into a folder.

    Args:
        report: From `make_report`.
        folder: Made where it does not exist; files of the same names are overwritten.

    Returns:
        The files: report.html, report.md, tables.tex, runs.csv, table.csv, figures/*.svg, and episodes.npz where runs
        have results by episode: an array for each `run_id`.

    Example:
        >>> import pandas as pd, tempfile
        >>> from arelu_meta.analysis import Findings
        >>> from arelu_meta.reporting import make_report
        >>> runs = pd.DataFrame({"activation": ["relu"] * 3 + ["arelu"] * 3, "seed": [0, 1, 2] * 2,
        ...                      "test/accuracy": [80.0, 82.0, 84.0, 85.0, 88.0, 89.5]})
        >>> found = Findings("mine", "", "", runs, ("activation",), "activation", "relu", "test/accuracy")
        >>> [path.name for path in write_report(make_report(found), Path(tempfile.mkdtemp()))]
        ['report.html', 'report.md', 'tables.tex', 'runs.csv', 'table.csv', 'arms.svg']
    """
    figures, templates, findings = draw_figures(report), _templates(), report.analysis.findings
    page, picture = templates.get_template("page.html"), templates.get_template("figure.svg")
    plots = {f"figures/{plot.name}.svg": plot for plot in figures.all}
    files = {
        "report.html": page.render(report=report, figures=figures, version=__version__).lstrip(),
        "report.md": markdown_report(report, {path: plot.caption for path, plot in plots.items()}),
        "tables.tex": latex_tables((*report.primary_tables, *report.secondary_tables), report.banner),
        "runs.csv": (findings.runs if findings.single_runs is None else findings.single_runs).to_csv(index=False),
        "table.csv": numbers_frame(report.analysis).to_csv(index=False),
        **{path: picture.render(plot=plot).lstrip() for path, plot in plots.items()},
    }
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    paths = [folder / name for name in files]
    if findings.episodes:
        np.savez_compressed(folder / "episodes.npz", **findings.episodes)
        paths.append(folder / "episodes.npz")
    return paths


def report_metrics(report: Report) -> dict[str, float]:
    """Numbers by name for the parent run: `arelu/test/accuracy_mean`, `arelu/lr_0.01/...`, `arelu/matched/...`.

    Args:
        report: From `make_report`.

    Returns:
        Numbers that exist, by names that MLflow takes: one seed has a mean and an `_n`, but no interval.
    """
    named: dict[str, float] = {}
    analyses = (report.analysis, *report.analysis.speeds)
    for metric, comparison in ((one.findings.metric, of) for one in analyses for of in (*one.matched, *one.fixed)):
        setting = [f"{axis}_{value_text(value)}" for axis, value in comparison.setting]
        for arm in comparison.arms:
            path = [arm.name, *setting, *(["matched"] if comparison.matched else []), metric]
            # MLflow takes plain signs only, and no path that leads elsewhere.
            plain = re.sub(r"[^\w./ -]", "_", "/".join(path), flags=re.ASCII)
            prefix = "/".join(folder for folder in plain.split("/") if folder.strip(".")) or "_"
            while f"{prefix}_n" in named:  # two names that differ in signs MLflow does not take
                prefix += "_"
            numbers = arm_numbers(arm)
            named |= {f"{prefix}_{key}": float(numbers[key]) for key in LOGGED if math.isfinite(numbers[key])}
    return named


def report_summary(report: Report) -> str:
    """The verdict, the primary tables and what limits them, for the terminal.

    Args:
        report: From `make_report`.

    Returns:
        Lines of text, without a newline at the end.
    """
    banner = [report.banner] if report.banner else []
    lines = [report.title, *banner, ""]
    for verdict in report.verdicts:
        about = f"{verdict.about}: " if verdict.about else ""
        lines += [f"{about}{verdict.sentences}", *([verdict.evidence] if verdict.evidence else []), ""]
    for table in report.primary_tables:
        rows = [[cell.text for cell in row] for row in table.rows]
        lines += [*banner, table.title, text_table(table.header, rows), ""]
    lines += [f"note: {note}" for note in report.notes]
    lines += [f"missing: {cell}" for cell in report.missing]
    return "\n".join(lines).rstrip()
