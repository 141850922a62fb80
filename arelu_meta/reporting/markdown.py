"""The report as Markdown."""

from arelu_meta.reporting.content import Content, Part
from arelu_meta.reporting.table import Table

SIGNS = (
    ("\\", "\\\\"),
    ("&", "&amp;"),
    ("<", "&lt;"),
    (">", "&gt;"),
    *((sign, f"\\{sign}") for sign in "|*`"),
    ("](", "]\\("),  # no links
)


def escape(written: str) -> str:
    """Keep what came from outside from being read as Markdown or HTML.

    >>> escape("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    for sign, instead in SIGNS:
        written = written.replace(sign, instead)
    return " ".join(written.split())


def _table(table: Table) -> list[str]:
    lines = ["| " + " | ".join(escape(heading) for heading in table.header) + " |"]
    lines.append("|" + "|".join("---" if column.of_words else "---:" for column in table.columns) + "|")
    lines += ["| " + " | ".join(escape(cell.text) for cell in row) + " |" for row in table.rows]
    return lines


def _part(part: Part, level: str) -> list[str]:
    lines = [f"{level} {escape(part.title)}", ""] if part.title else []
    if part.banner:
        lines += [f"> **{escape(part.banner)}**", ""]
    lines += [*_table(part.table), "", *(escape(line) + "  " for line in part.legend), ""]
    return lines


def markdown(content: Content, figures: dict[str, str]) -> str:
    """Write the report; `figures` are captions by the path of their file."""
    lines = [f"# {escape(content.title)}", ""]
    if content.question:
        lines += [f"*{escape(content.question)}*", ""]
    if content.banner:
        lines += [f"> **{escape(content.banner)}**", ""]
    lines += ["## Verdict", ""]
    for one in content.verdicts:
        about = f"{escape(one.about)}: " if one.about else ""
        lines += [f"**{about}{escape(one.sentences)}**", "", *([escape(one.grounds), ""] if one.grounds else [])]
    lines += [*(f"- {escape(note)}" for note in content.notes), ""]
    for part in content.tables:
        lines += _part(part, "##")
    if figures:
        lines += ["## Figures", ""]
    for path, caption in figures.items():
        lines += [f"![{escape(caption)}]({path})", ""]
    lines += ["## Protocol", "", "| fact | value |", "|---|---|"]
    lines += [f"| {escape(fact)} | {escape(value)} |" for fact, value in content.facts]
    if content.missing:
        lines += ["", "## Missing cells", "", *(f"- {escape(cell)}" for cell in content.missing)]
    return "\n".join(lines).rstrip() + "\n"
