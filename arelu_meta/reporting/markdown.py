"""The report as Markdown, and its tables as LaTeX."""

from collections.abc import Mapping, Sequence

from arelu_meta.reporting.content import Report
from arelu_meta.reporting.table import ReportTable

MARKDOWN_SIGNS = (
    ("\\", "\\\\"),
    ("&", "&amp;"),
    ("<", "&lt;"),
    (">", "&gt;"),
    *((sign, f"\\{sign}") for sign in "|*`"),
    ("](", "]\\("),  # no links
)
LATEX_SIGNS = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": "--",
    "±": r"$\pm$",
    "[": "{[}",  # after \\ it would be read as an optional argument
    "]": "{]}",
}


def escape_markdown(text: str) -> str:
    """Keep what came from outside from being read as Markdown or HTML.

    >>> escape_markdown("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    for sign, instead in MARKDOWN_SIGNS:
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
        lines += [f"## {escape(table.title)}", "", *banner, *_markdown_table(table), ""]
        lines += [*(escape(line) + "  " for line in table.legend), ""]
    lines += ["## Figures", ""] if figures else []
    for path, caption in figures.items():
        lines += [f"![{escape(caption)}]({path})", ""]
    lines += ["## Protocol", "", "| fact | value |", "|---|---|"]
    lines += [f"| {escape(fact)} | {escape(value)} |" for fact, value in report.facts]
    if report.missing:
        lines += ["", "## Missing cells", "", *(f"- {escape(cell)}" for cell in report.missing)]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_table(table: ReportTable) -> list[str]:
    rows = [table.header, *([cell.text for cell in row] for row in table.rows)]
    lines = ["| " + " | ".join(escape_markdown(text) for text in row) + " |" for row in rows]
    rule = "|" + "|".join("---" if column.is_text else "---:" for column in table.columns) + "|"
    return [lines[0], rule, *lines[1:]]


def escape_latex(text: str) -> str:
    r"""Keep what came from outside from being read as LaTeX; what its fonts cannot show becomes `?`.

    >>> escape_latex("relu_gain & 5 %")
    'relu\\_gain \\& 5 \\%'
    """
    shown = (sign if sign.isascii() or (sign.isalpha() and ord(sign) < 0x180) else "?" for sign in text)
    signs = (LATEX_SIGNS.get(sign, instead) for sign, instead in zip(text, shown, strict=True))
    return " ".join("".join(signs).split())


def latex_tables(tables: Sequence[ReportTable], note: str = "") -> str:
    """Write tables for a paper, to be put in by `\\input`; they need the package booktabs."""
    blocks = []
    for table in tables:
        columns = "".join("l" if column.is_text else "r" for column in table.columns)
        rows = [table.header, *([cell.text for cell in row] for row in table.rows)]
        written = [" & ".join(escape_latex(text) for text in row) + r" \\" for row in rows]
        caption = ". ".join(escape_latex(line) for line in (note, table.title, *table.legend) if line)
        blocks += [
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{caption}.}}",
            rf"\begin{{tabular}}{{{columns}}}",
        ]
        blocks += [
            r"\toprule",
            written[0],
            r"\midrule",
            *written[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    return "\n".join(blocks)
