"""What is left of a comparison: the report's files, its numbers, its words."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from arelu_meta.reporting.findings import Findings
from arelu_meta.tables import text_table

_REPORT = "arelu_meta.reporting.report"


def report_files(findings: Findings, folder: Path) -> None:
    """Write the report into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    findings.runs.to_csv(folder / "runs.csv", index=False)
    if (report := _report(findings)) is not None:
        report.write(findings, folder)


def report_metrics(findings: Findings) -> dict[str, float]:
    """Numbers for the parent run."""
    report = _report(findings)
    return {} if report is None else dict(report.metrics(findings))


def summary(findings: Findings) -> str:
    """What is printed at the end."""
    if findings.runs.empty:
        return "no cell has finished"
    if (report := _report(findings)) is not None:
        return str(report.summary(findings))
    columns = [*findings.axes, "seed", findings.metric]
    rows = [
        [f"{value:.2f}" if isinstance(value, float) else str(value) for value in row]
        for row in findings.runs[columns].to_numpy(dtype=object)
    ]
    return text_table(columns, rows)


def _report(findings: Findings) -> Any:
    """The report's module; None where there is nothing to report."""
    if findings.runs.empty or importlib.util.find_spec(_REPORT) is None:
        return None
    return importlib.import_module(_REPORT)
