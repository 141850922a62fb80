"""The report as Markdown, and its tables as LaTeX."""

from collections.abc import Mapping, Sequence

from arelu_meta.reporting.content import Report
from arelu_meta.reporting.table import ReportTable

MOST_NOTE = 8000  # characters of a tag that MLflow takes
# Signs are replaced in this order, the escape sign itself first.
MARKDOWN = {
    "\\": "\\\\",
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "|": "\\|",
    "*": "\\*",
    "`": "\\`",
    "](": "]\\(",
}
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "\N{MINUS SIGN}": "$-$",
        "\N{EN DASH}": "--",
        "[": "{[}",  # after \\ it would be read as an optional argument
        "]": "{]}",
    }
)


def escape_markdown(text: str) -> str:
    """Keep what came from outside from being read as Markdown or HTML.

    >>> escape_markdown("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    for sign, instead in MARKDOWN.items():
        text = text.replace(sign, instead)
    return " ".join(text.split())


def markdown_report(report: Report, figures: Mapping[str, str]) -> str:
    """Write the report; `figures` are captions by the path of their file."""
    escape = escape_markdown
    banner = [f"> **{escape(report.banner)}**", ""] if report.banner else []
    lines = [f"# {escape(report.title)}", ""]
    lines += [f"*{escape(report.question)}*", ""] if report.question else []
    lines += [*banner, "## Verdict", ""]
    for verdict in report.verdicts:
        about = f"{escape(verdict.about)}: " if verdict.about else ""
        lines += [f"**{about}{escape(verdict.sentences)}**", ""]
        lines += [escape(verdict.evidence), ""] if verdict.evidence else []
    lines += [*(f"- {escape(note)}" for note in report.notes), ""]
    for table in (*report.primary_tables, *report.secondary_tables):
        lines += [f"## {escape(table.title)}", "", *banner, *_table_lines(table), ""]
        lines += [*(escape(line) + "  " for line in table.legend), ""]
    lines += ["## Figures", ""] if figures else []
    for path, caption in figures.items():
        lines += [f"![{escape(caption)}]({path})", ""]
    lines += ["## Protocol", "", "| fact | value |", "|---|---|"]
    lines += [f"| {escape(fact)} | {escape(value)} |" for fact, value in report.facts]
    if report.missing:
        lines += ["", "## Missing cells", "", *(f"- {escape(cell)}" for cell in report.missing)]
    return "\n".join(lines).rstrip() + "\n"


def _table_lines(table: ReportTable) -> list[str]:
    """A table as Markdown."""
    rows = [table.header, *([cell.text for cell in row] for row in table.rows)]
    header, *body = ["| " + " | ".join(escape_markdown(text) for text in row) + " |" for row in rows]
    rule = "|" + "|".join("---" if column.is_text else "---:" for column in table.columns) + "|"
    return [header, rule, *body]


def markdown_note(
    report: Report, command: str = "", *, run_id: str = "", experiment_id: str = "", most: int = MOST_NOTE
) -> str:
    """What a report comes to, for the description of a run or an experiment: verdict, evidence, main tables, notes.

    Where that is longer than MLflow takes, notes are left out, then tables, from the last on. `run_id` is the run that
    has the report among its artifacts: its figure of the arms is shown, as no chart of the UI has intervals, and with
    its experiment a link opens the report, which is hard to find there.
    """
    escape = escape_markdown
    lines = [f"> **{escape(report.banner)}**", ""] if report.banner else []
    title = escape(report.title)  # stands with the first verdict: lists show no more than the first line
    for verdict in report.verdicts:
        lines += [f"**{': '.join(filter(None, (title, escape(verdict.about), escape(verdict.sentences))))}**", ""]
        lines += [escape(verdict.evidence), ""] if verdict.evidence else []
        title = ""
    lines += [f"*{escape(report.question)}*", ""] if report.question else []
    names = (
        ["arms"] if len(report.analysis.primary) == 1 else [f"arms-{one + 1}" for one in range(len(report.verdicts))]
    )
    shown = names if run_id and report.analysis.primary else []
    address = "![arms, each with its interval](get-artifact?path=report/figures/{}.svg&run_uuid={})"
    lines += [line for name in shown for line in (address.format(name, run_id), "")]
    parts = [
        [f"{escape(table.title)}:", "", *_table_lines(table), ""]
        for table in report.main_tables[: len(report.verdicts)]
    ]
    parts.append([*(f"- {escape(note)}" for note in (*report.notes, *report.missing)), ""])
    place = "report/report.html"
    if run_id and experiment_id:
        place = (
            f"[{place}](#/experiments/{experiment_id}/runs/{run_id}/artifacts/{place}?workflowType=machine_learning)"
        )
    last = [f"The whole report is {place} among the artifacts of the parent run."]
    last += ["", "```", command, "```"] if command else []
    while len(text := "\n".join([*lines, *(line for part in parts for line in part), *last])) > most and parts:
        parts.pop()
    return text[:most]


def latex_tables(tables: Sequence[ReportTable], note: str = "") -> str:
    """Write tables for a paper, to be put in by `\\input`; they need the package booktabs."""
    lines = []
    for table in tables:
        alignment = "".join("l" if column.is_text else "r" for column in table.columns)
        rows = [table.header, *([cell.text for cell in row] for row in table.rows)]
        header, *body = [" & ".join(text.translate(LATEX) for text in row) + r" \\" for row in rows]
        caption = ". ".join(line.translate(LATEX) for line in (note, table.title, *table.legend) if line)
        lines += [r"\begin{table}[htbp]", r"\centering", rf"\caption{{{caption}.}}"]
        lines += [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", header, r"\midrule", *body]
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)
