"""Reports of comparisons: verdicts, tables and figures as one page, Markdown, LaTeX, CSV and text."""

from arelu_meta.reporting.content import Report, make_report
from arelu_meta.reporting.report import report_metrics, report_summary, write_report

__all__ = ["Report", "make_report", "report_metrics", "report_summary", "write_report"]
