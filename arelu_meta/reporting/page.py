"""The report as one HTML page that needs no network: readable without scripts, on a phone, in the dark and on paper."""

from pathlib import Path

from arelu_meta import __version__
from arelu_meta.analysis.arms import Comparison
from arelu_meta.reporting.content import Content, Part
from arelu_meta.reporting.dot_plot import dot_plot
from arelu_meta.reporting.line_plot import legend, line_plot
from arelu_meta.reporting.looks import Look, looks
from arelu_meta.reporting.markup import EMPTY, Markup, join, tag
from arelu_meta.reporting.series import LineChart, curves, over_rates
from arelu_meta.reporting.table import Table

STYLE = (Path(__file__).with_name("page.css")).read_text(encoding="utf-8")
SCRIPT = (Path(__file__).with_name("page.js")).read_text(encoding="utf-8")


def page(content: Content) -> str:
    """Write the page."""
    judged = content.analysis.judged
    sections = [_verdict(content)]
    for number, comparison in enumerate(judged):
        sections.append(_comparison(content, comparison, number))
    sections.append(_rates(content, content.parts[len(judged) :]))
    sections.append(_protocol(content))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", content.title),
        tag("style", Markup(STYLE)),
    )
    header = tag(
        "header", tag("h1", content.title), tag("p", content.question, class_="question"), _banner(content.banner)
    )
    footer = tag(
        "footer", tag("p", f"Written by arelu_meta {__version__}. runs.csv and table.csv beside it hold all numbers.")
    )
    body = tag("body", header, tag("main", *sections), footer, tag("script", Markup(SCRIPT)))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _banner(text: str) -> Markup:
    return tag("p", text, class_="banner", role="note") if text else EMPTY


def _verdict(content: Content) -> Markup:
    said = []
    for one in content.verdicts:
        about = tag("b", f"{one.about}: ") if one.about else EMPTY
        said += [tag("p", about, one.sentences), tag("p", one.grounds, class_="grounds") if one.grounds else EMPTY]
    notes = tag("ul", *(tag("li", note) for note in content.notes), class_="notes") if content.notes else EMPTY
    return tag("section", tag("h2", "Verdict"), tag("div", *said, class_="verdict"), notes)


def _comparison(content: Content, comparison: Comparison, number: int) -> Markup:
    part, group = content.parts[number], f"s{number}"
    findings = content.analysis.findings
    drawn = [look for look in looks(content.analysis) if comparison.arm(look.name) is not None]
    others = [other for other in (content.controls[number], content.further[number]) if other is not None]
    beside = join([join([tag("h3", other.title), _table(other)]) for other in others])
    heading = tag("h2", part.title)
    charts = curves(findings, comparison)
    lines = join([tag("h3", "Curves"), legend(drawn, group), _charts(charts, drawn, group)]) if charts else EMPTY
    return tag("section", heading, dot_plot(findings, comparison, drawn, content.numbers), _table(part), beside, lines)


def _charts(charts: list[LineChart], drawn: list[Look], group: str) -> Markup:
    return tag("div", *(line_plot(chart, drawn, group) for chart in charts), class_="charts")


def _rates(content: Content, parts: tuple[Part, ...]) -> Markup:
    """The view at fixed settings, beside the one that was judged."""
    if not parts:
        return EMPTY
    analysis = content.analysis
    drawn = looks(analysis)
    charts = over_rates(analysis)
    plots = [legend(drawn, "rates"), _charts(charts, drawn, "rates")] if charts else []
    tables = [tag("details", tag("summary", part.title), _table(part)) for part in parts]
    return tag("section", tag("h2", "All arms at the same setting"), *plots, *tables)


def _table(part: Part) -> Markup:
    caption = tag("caption", part.title)
    meanings = tag(
        "details", tag("summary", "What the columns mean"), tag("ul", *(tag("li", line) for line in part.legend))
    )
    wide = tag("div", tag("table", caption, _head(part.table), _rows(part.table)), class_="wide", tabindex="0")
    return tag("div", _banner(part.banner), wide, meanings, class_="tabled")


def _head(table: Table) -> Markup:
    cells = (
        tag("th", column.heading, scope="col", title=column.meaning, class_="words" if column.of_words else "")
        for column in table.columns
        if column.heading != "role"  # stands below the name
    )
    return tag("thead", tag("tr", *cells))


def _rows(table: Table) -> Markup:
    rows = []
    for row in table.rows:
        roles = [cell.text for column, cell in zip(table.columns, row, strict=True) if column.heading == "role"]
        below = [tag("small", role) for role in roles if role]
        cells = [tag("th", row[0].text, *below, scope="row", data_order=row[0].order)]
        for column, cell in list(zip(table.columns, row, strict=True))[1:]:
            if column.heading != "role":
                cells.append(tag("td", cell.text, data_order=cell.order, class_="words" if column.of_words else ""))
        rows.append(tag("tr", *cells))
    return tag("tbody", *rows)


def _protocol(content: Content) -> Markup:
    facts = [tag("div", tag("dt", fact), tag("dd", value)) for fact, value in content.facts]
    parts = [tag("h2", "Protocol"), tag("dl", *facts)]
    if content.missing:
        parts += [tag("h2", "Missing cells"), tag("ul", *(tag("li", cell) for cell in content.missing))]
    return tag("section", *parts)
