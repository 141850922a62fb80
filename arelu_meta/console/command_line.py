"""What every command has: a parser whose errors are one line, and an exit code for everything that can go wrong.

Library code names arguments of its functions in backquotes; a command shows those that are its flags as flags.
"""

import argparse
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn, TextIO
from urllib.parse import unquote

from arelu_meta import __version__
from arelu_meta.console import output
from arelu_meta.console.output import write_line
from arelu_meta.errors import IN_ADDRESS, IN_QUERY, InputError, RunError, machine_trouble, suggestion
from arelu_meta.reading import MOST_MIB
from arelu_meta.runtime.signals import Terminated, ending_handled
from arelu_meta.runtime.waiting import bound_spinning

_PARSERS: ContextVar[list["Parser"] | None] = ContextVar("parsers of the running command", default=None)
_INSPECTED: ContextVar[list["Parser"] | None] = ContextVar("parsers of a command that is looked at", default=None)
_PUNCTUATION = str.maketrans("", "", "[](),\"'")  # of Python's tuples and strings
_ARGUMENT = re.compile(r"`([A-Za-z_]\w*)(?:=([^`]*))?`")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line with the near flag, like all other wrong input.

    While `main` runs a command, messages are written with the flags of its parsers.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if (parsers := _PARSERS.get()) is not None:
            parsers.append(self)
        if options.get("add_help", True):
            self.add_argument("--version", action="version", version=f"arelu_meta {__version__}")
            output.add_output_flags(self)
            text = "MiB that a file may take when it is unpacked, where 512, or 16 times the file, are too few"
            self.add_argument(
                "--unpack-limit", action=_UnpackLimit, metavar="MIB", default=argparse.SUPPRESS, help=text
            )
        if (inspected := _INSPECTED.get()) is not None:
            inspected.append(self)

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        """Parse, unless the command is only looked at (`parsers_of`): it ends with the flags of its own."""
        if _INSPECTED.get() is not None and self.add_help:
            raise _LookedAt
        return super().parse_known_args(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        if "arguments are required" in message:
            message += f"; {self.prog} --help describes them"
        first = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
        if message.startswith("unrecognized") and first.startswith("-"):
            known = [flag for parser in _PARSERS.get() or [self] for flag in parser.flags()]
            message = f"unknown flag {first!r}; {suggestion(first, known)}"
        raise InputError(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the near choice, as for all other names."""
        if action.choices is not None and value not in action.choices:
            near = suggestion(str(value), [str(choice) for choice in action.choices])
            raise argparse.ArgumentError(action, f"invalid choice: {str(value)!r}; {near}")

    def flags(self) -> list[str]:
        """Give the long forms of all flags."""
        return [flag for flag in self._option_string_actions if flag.startswith("--")]

    def flag_helps(self) -> dict[str, str]:
        """Give the help of all flags, by their long forms."""
        return {flag: (self._option_string_actions[flag].help or "").replace("%%", "%") for flag in self.flags()}

    def words(self) -> list[str]:
        """Give the words that are to be chosen from without a flag: sub-commands and the like."""
        choices = [action.choices for action in self._actions if action.choices and not action.option_strings]
        return [str(word) for some in choices for word in some]


class _UnpackLimit(argparse.Action):
    """A flag for what all readers ask the environment, which the processes of a comparison inherit."""

    def __call__(self, _parser: Any, _namespace: Any, values: Any, _option: str | None = None) -> None:
        """Set the variable until the command ends."""
        if not values.isascii() or not values.isdigit():
            raise argparse.ArgumentError(self, f"{values!r} is not a whole number of MiB")
        os.environ[MOST_MIB] = values


@contextmanager
def _kept_variable(name: str) -> Iterator[None]:
    """Have a variable of the environment be in the end what it was before."""
    before = os.environ.get(name)
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before
        else:
            os.environ.pop(name, None)


class _LookedAt(BaseException):
    """Ends a command that is looked at, before it does anything."""


def parsers_of(run: Callable[[Sequence[str]], int], argv: Sequence[str] = ()) -> list[Parser]:
    """Give the parsers that a command makes for some arguments, without running it."""
    inspected: list[Parser] = []
    token = _INSPECTED.set(inspected)
    try:
        with suppress(_LookedAt):
            run(argv)
    finally:
        _INSPECTED.reset(token)
    return inspected


def arguments_as_flags(message: str, flags: Collection[str] = ()) -> str:
    """Write the arguments that a message names in backquotes as flags, where there are such flags, or without quotes.

    >>> arguments_as_flags('lower `inner_lr`, or set `engine="func"`', ["--inner-lr", "--engine"])
    'lower --inner-lr, or set --engine func'
    >>> arguments_as_flags('lower `inner_lr`, or set `engine="func"`')
    'lower inner_lr, or set engine="func"'
    """

    def written(found: re.Match[str]) -> str:
        name, value = found.groups()
        flag = f"--{name.replace('_', '-')}"
        if flag not in flags:
            return found[0].strip("`")
        if value in (None, "True"):
            return flag
        if value == "False":
            return f"--no-{flag.removeprefix('--')}"
        return f"{flag} {'none' if value == 'None' else value.translate(_PUNCTUATION)}"

    return _ARGUMENT.sub(written, message)


def main(command: Callable[[Sequence[str] | None], int | None], argv: Sequence[str] | None = None) -> int:
    """Run a command; what goes wrong is one line and an exit code.

    Wrong input 2, a run that cannot go on 1, an interruption 130 (SIGTERM 143, SIGHUP 129); else what the command
    gives, or 0.
    """
    bound_spinning()  # commands load torch later than this
    # Seven would take minutes; what a server misses waits in the journal of its run, and is sent again from there.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    formatwarning = warnings.formatwarning
    parsers: list[Parser] = []
    token = _PARSERS.set(parsers)

    def shown(kind: str, message: object) -> str:
        flags = {flag for parser in parsers for flag in parser.flags()}
        lines = arguments_as_flags(str(message), flags).split("\n")  # several where several things are wrong at once
        return "".join(f"{kind}: {line}\n" for line in lines)

    showwarning = warnings.showwarning
    if os.environ.get("RANK", "0") != "0":  # of several processes (torchrun) the first warns
        warnings.showwarning = lambda *_warning, **_options: None
    warnings.formatwarning = lambda message, *_where, **_line: shown("warning", message)
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams = _writable(sys.stdout), _writable(sys.stderr)
    if secrets := passwords(sys.argv[1:] if argv is None else argv):
        sys.stdout, sys.stderr = (_Masked(stream, secrets) for stream in streams)
    try:
        with output.asked_by_flags(), _kept_variable(MOST_MIB), ending_handled():
            code = command(argv)
            sys.stdout.flush()
            return code or 0
    except Terminated as ending:
        write_line("terminated")
        return 128 + ending.number
    except KeyboardInterrupt:
        write_line("interrupted")
        return 130
    except Exception as error:
        line = error if isinstance(error, InputError | RunError) else machine_trouble(error)
        if line is None and not secrets:
            raise
        write_line(shown("error", line).rstrip("\n") if line else traceback.format_exc())  # Python itself knows no mask
        _leave_output_that_fails(streams[0])
        return 2 if isinstance(error, InputError) else 1
    finally:
        sys.stdout, sys.stderr = before
        warnings.formatwarning, warnings.showwarning = formatwarning, showwarning
        _PARSERS.reset(token)


def _writable(stream: TextIO | None) -> TextIO:
    """Have a stream that takes every letter, also those that the terminal has not; one that is closed is nowhere."""
    if stream is None:
        return io.StringIO()
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")
    return stream


def _leave_output_that_fails(stream: TextIO) -> None:
    """Have Python not try again, at its end, to write what a closed pipe or a full disk did not take."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def passwords(words: Sequence[str] = ()) -> list[str]:
    """Give the passwords in the addresses of the MLflow store and registry, as written there and as they are.

    Args:
        words: of a command, which may be addresses too
    """
    found = []
    variables = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
    values = [(variable, os.environ.get(variable, "")) for variable in variables]
    for variable, value in (*values, *(("URI", str(word)) for word in words)):
        inside = re.search(IN_ADDRESS, value)
        written = inside[2] if inside else "" if variable.endswith("URI") else value
        asked = [query[2] for query in re.finditer(rf"{IN_QUERY}([^&\s]+)", value)]
        found += [one for text in (written, *asked) for one in (text, unquote(text)) if one]
    return found


class _Masked:
    """A stream in which passwords are written as `***`, whoever writes them."""

    def __init__(self, stream: TextIO, secrets: Sequence[str]) -> None:
        self._stream, self._secrets = stream, secrets

    def write(self, text: str) -> int:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def output_folder(path: Path) -> Path:
    """Make the folder that takes a command's results, before they are computed.

    Raises:
        InputError: the folder cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}; choose another") from error
    if not os.access(path, os.W_OK):
        raise InputError(f"cannot write to the folder {path}; choose another")
    return path
