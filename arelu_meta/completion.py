"""Write the script with which bash, zsh or fish completes commands and flags.

eval "$(arelu-meta completion bash)"
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import get_args

from arelu_meta import activations, backbones, data, kinds, learners
from arelu_meta.console import catalog, command_line, completion, output
from arelu_meta.kinds.adapt.spec import Method


def command(argv: Sequence[str] | None = None) -> None:
    """Print the script."""
    parser = command_line.Parser(
        prog="python -m arelu_meta.completion",
        description="Write the script with which a shell completes commands and flags of arelu-meta.",
        epilog="\n".join(completion.INSTALL.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=completion.SHELLS, help="the shell")
    shell = parser.parse_args(argv).shell
    text = completion.script(shell, _commands(), _values())
    output.show(text, {"shell": shell, "script": text})


def _commands() -> dict[str, completion.Completed]:
    """Look at the parsers of every command."""
    listed = importlib.import_module("arelu_meta.__main__")  # which imports commands by their names, as this does
    places, found = listed.modules(), {}
    for place, summary in listed.commands().items():
        name = place.removeprefix("arelu_meta.")
        module = importlib.import_module(f"arelu_meta.{places[name]}")
        looks = [[], *([flag, "x"] for flag in getattr(module, "KIND_BY_FLAG", ()))]
        parsers = [parser for words in looks for parser in command_line.parsers_of(module.main, words)]
        flags = {flag: text for parser in parsers for flag, text in parser.flag_helps().items()}
        words = [word for parser in parsers for word in parser.words()]
        values = {"--task": _tasks(name)} | ({"--method": list(get_args(Method))} if name == "adapt" else {})
        own = {flag: some for flag, some in values.items() if some and flag in flags}
        found[name] = completion.Completed(summary, flags, words or _NAMES.get(name, list)(), own)
    return found


def _tasks(command: str) -> list[str]:
    """The tasks that a command runs; lr_view takes those of its kind."""
    of_kind = {name for name in kinds.names() if kinds.entry(name).command == command}
    of_kind |= {"finetune"} if command == "lr_view" else set()
    return [name for name in catalog.names("task") if catalog.read("task", name).get("kind") in of_kind]


_NAMES = {"compare": lambda: catalog.names("experiment")}  # words of commands that take files too


def _values() -> dict[str, list[str]]:
    """What can follow a flag, where that is a name."""
    return {
        "--task": catalog.names("task"),
        "--activation": activations.names(),
        "--backbone": backbones.names("classification"),
        "--data": data.names(),
        "--dataset": data.names(),
        "--method": learners.names(),
        "--device": ["auto", "cpu", "cuda", "mps"],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    return command_line.main(command, argv)


if __name__ == "__main__":
    sys.exit(main())
