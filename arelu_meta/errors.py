"""The one error that wrong input raises: a single line with the value and the remedy.

Commands print it and end with exit code 2; code that calls the library catches it as the `ValueError` it is.
"""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave is wrong; the message says what and what to do."""


class StoreError(InputError):
    """The MLflow store cannot be used: wrong input when a command begins, a store that is away in the middle of one."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say which known name was meant, or list them when none is near.

    >>> suggestion("arleu", ["relu", "arelu"])
    "did you mean 'arelu'?"
    """
    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that is not in a registry, a file or a set of flags."""
    return InputError(f"unknown {kind} {name!r}; {suggestion(name, known)}")


def first_line(error: BaseException) -> str:
    """Give the first line of an error's message, or its type where it has none.

    >>> first_line(KeyError("name")), first_line(ValueError())
    ("'name'", 'ValueError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class RunError(RuntimeError):
    """A run cannot go on: a loss that is no longer finite, a store that went away."""


class DivergedError(RunError):
    """The loss is no longer finite. The same run would end so again: where settings are compared, this is an answer."""
