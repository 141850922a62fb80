"""The report as LaTeX: a document that compiles by itself, whose tables can be lifted out."""

from arelu_meta.reporting.content import Content, Part
from arelu_meta.reporting.table import Table

SIGNS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
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
HEAD = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{booktabs,graphicx}
\usepackage[landscape,margin=2cm]{geometry}
"""


def escape(written: str) -> str:
    r"""Keep what came from outside from being read as LaTeX; what its fonts cannot show becomes `?`.

    >>> escape("relu_gain & 5 %")
    'relu\\_gain \\& 5 \\%'
    """
    signs = (
        SIGNS.get(sign, sign if sign.isascii() or (sign.isalpha() and ord(sign) < 0x180) else "?") for sign in written
    )
    return " ".join("".join(signs).split())


def _tabular(table: Table) -> list[str]:
    columns = "".join("l" if column.of_words else "r" for column in table.columns)
    return [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(escape(heading) for heading in table.header) + r" \\",
        r"\midrule",
        *(" & ".join(escape(cell.text) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _part(part: Part) -> list[str]:
    caption = ". ".join(escape(line) for line in (part.banner, part.title, *part.legend) if line)
    return [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{caption}.}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *_tabular(part.table),
        "}",
        r"\end{table}",
        "",
    ]


def latex(content: Content, figures: dict[str, str]) -> str:
    """Write the report; `figures` are captions by the path of their file."""
    lines = [HEAD, rf"\title{{{escape(content.title)}}}", r"\author{}\date{}", r"\begin{document}", r"\maketitle"]
    lines += [rf"\emph{{{escape(content.question)}}}", ""] if content.question else []
    lines += [rf"\textbf{{{escape(content.banner)}}}", ""] if content.banner else []
    lines.append(r"\section*{Verdict}")
    for one in content.verdicts:
        about = f"{escape(one.about)}: " if one.about else ""
        lines += [rf"\textbf{{{about}{escape(one.sentences)}}}", "", escape(one.grounds), ""]
    lines += _items(content.notes)
    for part in content.tables:
        lines += _part(part)
    for path, caption in figures.items():
        picture = rf"\includegraphics[width=\linewidth,height=0.85\textheight,keepaspectratio]{{{path}}}"
        lines += [
            r"\begin{figure}[htbp]",
            r"\centering",
            picture,
            rf"\caption{{{escape(caption)}}}",
            r"\end{figure}",
            "",
        ]
    lines += [r"\section*{Protocol}", *_items([f"{fact}: {value}" for fact, value in content.facts])]
    if content.missing:
        lines += [r"\section*{Missing cells}", *_items(content.missing)]
    return "\n".join([*lines, r"\end{document}", ""])


def _items(lines: list[str] | tuple[str, ...]) -> list[str]:
    if not lines:
        return []
    return [r"\begin{itemize}", *(rf"\item {escape(line)}" for line in lines), r"\end{itemize}"]
