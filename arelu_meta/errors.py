"""Errors, each with a message of one line: the value, what is wrong with it, and the remedy.

What to raise when:

- `InputError`: an argument, a setting, a file or data is wrong, and the caller can put it right. It is a `ValueError`.
- `StoreError`: the same, where it is the MLflow store that cannot be used.
- `RunError`: the input was right and the run cannot go on. It is a `RuntimeError`.
- `DivergedError`: the same, where the loss is no longer finite: a result when settings are compared.
- `TypeError`: an argument of the wrong type, a mistake in code.

A message names arguments in backquotes ("lower `queries`"); commands show those that are flags of theirs as flags
(`console.command_line`), and end with exit code 2 for an `InputError`, with 1 for a `RunError`.
"""

import difflib
import errno
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path

# Of libraries that have no MemoryError or OSError for it: torch's allocators, C++, Rust, and SQLite.
_NO_MEMORY = ("allocate memory", "bad_alloc", "out of memory", "Unable to allocate", "failed to map segment")
_NO_ROOM = ("No space left on device", "disk is full", "file write failed", "Too many open files", "unexpected pos")
# What a machine lacks or forbids; any other error of the operating system may be a mistake of ours, and is shown whole.
_OF_THE_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.ESTALE, errno.EPIPE),
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH),
}
_LONGEST = 200  # characters of a library's message that are shown
# Before the last @, as a password may hold one; a user may too, where it is an address of mail.
IN_ADDRESS = r"(://[^:/\s]*):(\S+)@"
IN_QUERY = r"([?&](?:password|sslpassword|passwd)=)"  # before the password in an address of a database


class InputError(ValueError):
    """Something the user gave is wrong; the message says what and what to do."""


class StoreError(InputError):
    """The MLflow store cannot be used: wrong input when a command begins, a store that is away in the middle of one."""


class RunError(RuntimeError):
    """A run cannot go on: a loss that is no longer finite, a store that went away."""


class DivergedError(RunError):
    """The loss is no longer finite. The same run would end so again: where settings are compared, this is an answer."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say which known name was meant, or list them when none is near.

    >>> suggestion("arleu", ["relu", "arelu"])
    "did you mean 'arelu'?"
    """
    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that is not in a registry, a file or a set of flags.

    >>> unknown("activation", "arleu", ["relu", "arelu"])
    InputError("unknown activation 'arleu'; did you mean 'arelu'?")
    """
    return InputError(f"unknown {kind} {name!r}; {suggestion(name, known)}")


def require(*packages: str, what: str, extra: str) -> None:
    """Raise where a package of one of our extras is not installed, without importing it.

    >>> require("nowhere_to_be_found", what="ONNX", extra="onnx")
    Traceback (most recent call last):
    ...
    arelu_meta.errors.InputError: ONNX needs the package nowhere_to_be_found; pip install 'arelu-meta[onnx]'
    """
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise InputError(f"{what} needs the package {name}; pip install 'arelu-meta[{extra}]'")


def machine_trouble(error: BaseException) -> str | None:
    """Say in a line what the machine lacks, where an error comes of that: memory, room, files; None where it does not.

    >>> machine_trouble(OSError(28, "No space left on device", "runs/x"))
    'the machine failed: No space left on device (runs/x)'
    >>> machine_trouble(FileNotFoundError(2, "No such file or directory", "template.html"))
    """
    cause: BaseException | None = error
    while cause is not None:
        text = first_line(cause)
        if isinstance(cause, MemoryError) or any(words in str(cause) for words in _NO_MEMORY):
            reason = f" ({text[:_LONGEST]})" if text != type(cause).__name__ else ""
            return f"there is not enough memory{reason}; train on less at once, or end other processes"
        if isinstance(cause, OSError) and (cause.errno in _OF_THE_MACHINE or _is_in_a_deleted_folder(cause)):
            where = f" ({cause.filename})" if cause.filename is not None else ""
            return f"the machine failed: {cause.strerror}{where}"
        if any(words in str(cause) for words in _NO_ROOM):
            return f"the machine failed: {text[:_LONGEST]}"
        cause = cause.__cause__
    return None


def _is_in_a_deleted_folder(error: OSError) -> bool:
    """Whether a file is missing with the folder it was in; in a folder that is there, we asked for a wrong name."""
    named = isinstance(error, FileNotFoundError) and isinstance(error.filename, str | os.PathLike)
    return named and not Path(error.filename).absolute().parent.exists()


def first_line(error: BaseException) -> str:
    """Give the first line of an error's message, or its type where it has none; passwords in addresses are masked.

    >>> first_line(KeyError("name")), first_line(ValueError())
    ("'name'", 'ValueError')
    """
    return without_password((str(error).strip().splitlines() or [type(error).__name__])[0])


def without_password(text: str) -> str:
    """Take passwords out of the addresses in a text.

    >>> without_password("no answer from postgresql://me:secret@host/mlflow")
    'no answer from postgresql://me:***@host/mlflow'
    >>> without_password("postgresql://host/mlflow?user=me&password=secret")
    'postgresql://host/mlflow?user=me&password=***'
    """
    text = re.sub(IN_ADDRESS, r"\1:***@", text)
    return re.sub(rf"{IN_QUERY}[^&\s]+", r"\1***", text)
