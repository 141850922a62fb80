"""What a command prints: text for people, or with --json one JSON document; with --quiet, no progress.

Every command gives its result to `show`, as text and as plain values; which of the two is printed is asked for by flags
that every parser has (`command_line.Parser`).
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TextIO, cast

EXIT_CODES = {
    0: "done; judge: a difference",
    1: "failed: a run that cannot go on, a disk or a store that fails, cells without a result",
    2: "wrong input, data that cannot be had (a failed download) or a store that cannot be opened: one line on "
    "standard error says what to do, nothing was begun",
    3: "judge: no difference is detectable",
    4: "judge: equivalent within the margin",
    5: "judge: too little data",
    129: "the terminal was closed (SIGHUP)",
    130: "interrupted (Ctrl-C); the same command with --resume goes on",
    143: "terminated (SIGTERM)",
}
"""what a command ends with, for scripts"""


@dataclass
class _Asked:
    """What the flags of the running command ask for, and its name."""

    json: bool = False
    quiet: bool = False
    command: str = ""


_asked = _Asked()  # of the process, not of a context: threads that send and prefetch are quiet too


class Ask(argparse.Action):
    """A flag that asks for a way to print; parsers give it no place among their values."""

    def __call__(self, *_: Any, **__: Any) -> None:
        """Note it."""
        setattr(_asked, self.option_strings[0].removeprefix("--"), True)
        if _asked.json and not isinstance(sys.stdout, DocumentOnly):
            sys.stdout = cast("TextIO", DocumentOnly(sys.stdout))


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every command has."""
    helps = {
        "--json": "print the result as one JSON document; progress goes to standard error",
        "--quiet": "show no progress: the result, warnings and errors alone",
    }
    for flag, text in helps.items():
        parser.add_argument(flag, action=Ask, nargs=0, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, help=text)
    _asked.command = _asked.command or parser.prog.rpartition(".")[2]  # of the first parser; others are of its parts


@contextmanager
def asked_by_flags() -> Iterator[None]:
    """Have the flags of a command count until it ends; a command within another has its own."""
    before, stdout = dataclasses.replace(_asked), sys.stdout
    _asked.json, _asked.quiet, _asked.command = False, False, ""
    try:
        yield
    finally:
        _asked.json, _asked.quiet, _asked.command = before.json, before.quiet, before.command
        sys.stdout = stdout


def wants_json() -> bool:
    """Whether one JSON document is to be all of standard output."""
    return _asked.json


def is_quiet() -> bool:
    """Whether progress is not to be shown."""
    return _asked.quiet


def show(text: str, document: Mapping[str, Any]) -> None:
    """Print a result: the text, or the document where JSON is asked for.

    Args:
        text: for people.
        document: the same for scripts; estimates, paths, arrays of numpy and numbers that are none are made plain.
    """
    stream = sys.stdout
    if _asked.json:
        text = json.dumps({"command": _asked.command, **plain(document)}, indent=1)
        stream = getattr(stream, "for_document", stream)
    stream.write(text.rstrip("\n") + "\n")


class DocumentOnly:
    """Standard output that takes nothing but the document: what libraries print, as of a download, goes to standard
    error.
    """

    def __init__(self, stream: TextIO) -> None:
        self.for_document = stream

    def write(self, text: str) -> int:
        """Write to standard error."""
        return sys.stderr.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.for_document, name)


def plain(value: Any) -> Any:
    """Make a value of what JSON has; a number that is not finite is None.

    >>> plain({"path": PurePath("a/b"), "n": (1, math.nan)})
    {'path': 'a/b', 'n': [1, None]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):  # of numpy and torch
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_line(line: str) -> None:
    """Write a line to standard error; where that is a closed pipe, or a full disk, it is lost."""
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
