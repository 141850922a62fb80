"""What tests of the documentation share: the blocks of a page, its notebooks, and the commands that it names."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(
    [DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")], key=lambda page: page.as_posix()
)
COMMAND = re.compile(r"^(?:\S+=\S+ )*(?:python -m arelu_meta\.?|arelu-meta ?)(?P<rest>.*)$")


def execute(page: str, **names: Any) -> dict[str, Any]:
    """Run the Python blocks of a page in one namespace; a traceback shows the page's own line numbers."""
    text = (DOCS / page).read_text()
    names["__name__"] = page
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        lines_above = text[: block.start(1)].count("\n")
        exec(compile("\n" * lines_above + block[1], page, "exec"), names)  # noqa: S102
    return names


def execute_notebook(name: str) -> dict[str, Any]:
    """Run the code cells of a notebook in one namespace."""
    names: dict[str, Any] = {"__name__": name}
    for number, cell in enumerate(json.loads((DOCS / "notebooks" / name).read_text())["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), names)  # noqa: S102
    return names


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands that a page names, in blocks without a language and between backquotes: the line, and its words.

    A command that goes on in the next line, or past a pipe, is one; a comment behind it is none of its words.
    """
    text = page.read_text().replace("\\\n", " ")
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    quoted = re.findall(r"`((?:python -m arelu_meta|arelu-meta)[^`]*)`", prose)
    for line in [line for block in fenced for line in block.splitlines()] + [" ".join(line.split()) for line in quoted]:
        found = COMMAND.match(line)
        if found:
            yield line, shlex.split(re.split(r"(?: (?:\||&&|>)|;) ", found["rest"])[0], comments=True)
