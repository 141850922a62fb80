"""HTML and SVG out of Python, with everything from outside escaped."""

import html


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY = Markup("")
ALONE = {"meta", "input", "br"}


def tag(name: str, /, *children: str, **attributes: str | float | bool) -> Markup:
    """Write an element. Children that are not `Markup` are escaped, as are attribute values.

    A trailing underscore in an attribute's name is dropped, others become hyphens. True is an attribute without value,
    False is none.

    >>> tag("td", "a < b", class_="x", data_order=0.5)
    '<td class="x" data-order="0.5">a &lt; b</td>'
    """
    written = ""
    for key, value in attributes.items():
        plain = key.rstrip("_").replace("_", "-")
        if value is True:
            written += f" {plain}"
        elif value is not False:
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            written += f' {plain}="{html.escape(shown)}"'
    if name in ALONE:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: "tuple[str, ...] | list[str]") -> Markup:
    """Put pieces behind each other, escaping those that are plain text."""
    return Markup("".join(child if isinstance(child, Markup) else html.escape(child) for child in children))
