"""One careful way to read files: regular ones only, inside their folder, within bounds, every failure one line.

What comes from a file may be damaged or made by a stranger. Readers open it here, check sizes before they allocate, and
let `parsing` turn whatever a parser raises into an `InputError` that names the file.

ARELU_META_MOST_MIB       MiB that one file may take when it is unpacked; raise it for large sets
ARELU_META_FOLLOW_LINKS   1: links in a folder may lead out of it
"""

import json
import os
import pickletools
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, BinaryIO

from arelu_meta.errors import InputError, RunError, first_line

MOST_MIB, FOLLOW_LINKS = "ARELU_META_MOST_MIB", "ARELU_META_FOLLOW_LINKS"
MOST = 512 << 20  # bytes of what is unpacked from a small file; a large one may grow to GROWTH times its size
GROWTH = 16
MOST_TEXT = 16 << 20  # bytes of a file of settings: TOML, JSON, MLmodel
MOST_SKIPPED = 1000  # numbers that a pickle leaves out when it counts its values
DEEPEST_TUPLE = 20  # in a pickle: tuples of tuples of tuples take for ever to hash
_FOLLOW: ContextVar[bool] = ContextVar("links may lead out of their folder", default=False)
_SKIP: ContextVar[bool] = ContextVar("image files that cannot be read are left out", default=False)
_SHORTEST = 200  # characters of a parser's message that are shown


@contextmanager
def following_links(follow: bool = True) -> Iterator[None]:
    """Let links in a folder lead out of it, for the time being."""
    token = _FOLLOW.set(_FOLLOW.get() or follow)
    try:
        yield
    finally:
        _FOLLOW.reset(token)


@contextmanager
def skipping_broken(skip: bool = True) -> Iterator[None]:
    """Leave image files of a folder out that cannot be read, for the time being; readers name them in a warning."""
    token = _SKIP.set(_SKIP.get() or skip)
    try:
        yield
    finally:
        _SKIP.reset(token)


def skips_broken() -> bool:
    """Whether image files that cannot be read are left out."""
    return _SKIP.get()


@contextmanager
def parsing(path: str | Path, *, remedy: str = "replace the file", what: str = "damaged") -> Iterator[None]:
    """Turn whatever a parser raises into one line.

    Args:
        path: the file, for the message.
        remedy: what to do about it.
        what: what a file is said to be that the parser fails on.

    Raises:
        InputError: anything but an interruption went wrong inside.

    >>> with parsing("shares.csv"):
    ...     1 / 0
    Traceback (most recent call last):
    arelu_meta.errors.InputError: shares.csv is damaged (ZeroDivisionError: division by zero); replace the file
    """
    try:
        yield
    except (InputError, RunError):
        raise
    except MemoryError as error:
        raise InputError(f"{shown(path)} does not fit into memory; {remedy}") from error
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise InputError(f"cannot read {shown(path)}: {shown(reason)[:_SHORTEST]}; {remedy}") from error
    except Exception as error:
        reason = shown(first_line(error))[:_SHORTEST]
        raise InputError(f"{shown(path)} is {what} ({type(error).__name__}: {reason}); {remedy}") from error


def shown(text: object) -> str:
    """Write a name from outside on one line, whatever characters it has.

    >>> shown("a\\nb\\x1b[2J")
    'a\\\\nb\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file to read; a pipe would wait for ever, and a device has no end.

    Raises:
        InputError: it is no regular file.
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise InputError(f"{shown(path)} is no regular file (a pipe, a device or a folder); name a file")
    return file


def read_text(
    path: str | Path, *, most: int = MOST_TEXT, remedy: str = "replace the file", what: str = "damaged"
) -> str:
    """Read a small text file as UTF-8.

    Raises:
        InputError: it is not there, no regular file, larger than `most` bytes, or not UTF-8.
    """
    with parsing(path, remedy=remedy, what=what), open_regular(path) as file:
        content = file.read(most + 1)
        if len(content) > most:
            raise InputError(f"{shown(path)} is larger than {most >> 20} MiB, more than such a file holds; {remedy}")
        return content.decode("utf-8")


def parse_json(text: str, path: str | Path, *, remedy: str = "replace the file") -> dict[str, Any]:
    """Read the JSON object that a file or an entry of it holds.

    Raises:
        InputError: it is not JSON, nested beyond measure, or not an object.

    >>> parse_json('{"format": "pt"}', "header")
    {'format': 'pt'}
    """
    with parsing(path, remedy=remedy, what="not JSON"):
        content = json.loads(text)
    if not isinstance(content, dict):
        raise InputError(f"{shown(path)} holds a {type(content).__name__}, not a JSON object; {remedy}")
    return content


def read_json(path: str | Path, *, remedy: str = "replace the file") -> dict[str, Any]:
    """Read a JSON object from a small file; see `read_text` and `parse_json`."""
    return parse_json(read_text(path, remedy=remedy), path, remedy=remedy)


def check_size(path: str | Path, needed: int, packed: int, *, what: str = "unpacked") -> None:
    """Refuse to allocate what is out of proportion to a file.

    Args:
        path: the file.
        needed: bytes that it says it unpacks to.
        packed: bytes that it has.
        what: what takes them.

    Raises:
        InputError: more than 512 MiB and more than 16 times the file; `ARELU_META_MOST_MIB`, or `--unpack-limit` of a
            command, allows more.
    """
    given = os.environ.get(MOST_MIB, "")
    most = max(MOST, GROWTH * packed)
    if given:
        if not given.isascii() or not given.isdigit():
            raise InputError(f"{MOST_MIB} is {given!r}; set it to a whole number of MiB")
        most = int(given) << 20
    if needed > most:
        raise InputError(
            f"{shown(path)} takes {needed >> 20} MiB {what}, more than {most >> 20} MiB; "
            f"if that is meant, set {MOST_MIB} to {(needed >> 20) + 1}"
        )


def check_file_size(path: str | Path, file: BinaryIO) -> None:
    """Refuse a file that is read as a whole and larger than 512 MiB; one with a hole takes no room on the disk."""
    check_size(path, os.fstat(file.fileno()).st_size, 0, what="to read")


def check_members(path: str | Path, archive: zipfile.ZipFile, *, packed: int) -> None:
    """Refuse a zip file whose members are encrypted, or too large together."""
    members = archive.infolist()
    if any(member.flag_bits & 1 for member in members):
        raise InputError(f"{shown(path)} is encrypted; unpack it first")
    check_size(path, sum(member.file_size for member in members), packed)


def check_inside(path: Path, folder: Path) -> None:
    """Refuse a file whose real place is outside of a folder, unless links may be followed.

    Raises:
        InputError: it climbs out by `..`, by an absolute path or by a link.
    """
    if _FOLLOW.get() or os.environ.get(FOLLOW_LINKS, "0") not in ("", "0"):
        return
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            f"{shown(path)} leads out of {shown(folder)}; move the file there, "
            f"or allow it with `follow_links` ({FOLLOW_LINKS}=1)"
        )


def plain_name(kind: str, name: str) -> str:
    """Check a name that becomes part of a path: no folder, no `..`, nothing unprintable.

    >>> plain_name("task", "../../x")
    Traceback (most recent call last):
    arelu_meta.errors.InputError: task '../../x' cannot be the name of a folder; use letters, digits, _ . and -
    """
    if not name or len(name) > 200 or name.startswith(".") or set(name) & set('/\\:\0"<>|*?') or not name.isprintable():
        raise InputError(f"{kind} {name[:80]!r} cannot be the name of a folder; use letters, digits, _ . and -")
    return name


def check_pickle(content: bytes | IO[bytes], path: str | Path) -> None:
    """Refuse a pickle that nests tuples beyond measure: some pickles of a few hundred bytes take for ever to read.

    A tuple of twice the same tuple, thirty times over, has a billion leaves when it is hashed. The operations are
    followed with nothing but the depth of each value; nothing is built.

    Raises:
        InputError: it nests tuples beyond measure, or is no pickle.
    """
    stack: list[int | None] = []  # depth of each value; None: a mark
    memo: dict[int, int] = {}
    with parsing(path, what="not a pickle"):
        for operation, argument, _ in pickletools.genops(content):
            name, before, after = operation.name, operation.stack_before, operation.stack_after
            if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
                place = len(memo) if name == "MEMOIZE" else int(argument or 0)
                if not 0 <= place <= len(memo) + MOST_SKIPPED:  # the unpickler would fill all places below it
                    raise InputError(f"{shown(path)} counts its values wrongly; replace the file")
                memo[place] = stack[-1] or 0
                continue
            if name in ("GET", "BINGET", "LONG_BINGET"):
                stack.append(memo[int(argument or 0)])
                continue
            if name == "DUP":
                stack.append(stack[-1])
                continue
            taken: list[int] = []
            if pickletools.markobject in before:
                while (value := stack.pop()) is not None:
                    taken.append(value)
                before = before[: before.index(pickletools.markobject)]
            taken += [stack.pop() or 0 for _ in before]
            depth = max(taken, default=0) + ("TUPLE" in name and bool(taken))
            if depth > DEEPEST_TUPLE:
                raise InputError(f"{shown(path)} nests tuples {depth} deep, more than any such file; replace the file")
            stack += [None if kind is pickletools.markobject else depth for kind in after]
