"""What every command has: a parser whose errors are one line, and an exit code for everything that can go wrong."""

import argparse
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

from arelu_meta import __version__
from arelu_meta.errors import InputError, RunError


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line with the near flag, like all other wrong input."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if options.get("add_help", True):
            self.add_argument("--version", action="version", version=f"arelu_meta {__version__}")

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise InputError(message)


def main(command: Callable[[Sequence[str] | None], None], argv: Sequence[str] | None = None) -> int:
    """Run a command; what goes wrong is one line and an exit code.

    Wrong input 2, a run that cannot go on 1, an interruption 130 (SIGTERM 143).
    """
    previous, formatwarning = signal.signal(signal.SIGTERM, terminate), warnings.formatwarning
    warnings.formatwarning = lambda message, *_where, **_line: f"warning: {message}\n"
    try:
        command(argv)
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except RunError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except Terminated:
        sys.stderr.write("terminated\n")
        return 143
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    finally:
        signal.signal(signal.SIGTERM, previous)
        warnings.formatwarning = formatwarning
    return 0


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C: the run is marked KILLED before the process ends."""


def terminate(_signal: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM."""
    raise Terminated
