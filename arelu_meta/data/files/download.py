"""Fetch published files: several mirrors, checksum, resume, atomic placement, one writer at a time.

A file grows as `NAME.part` and takes its name only when it is whole and its checksum is the publisher's.
A cut transfer leaves the part, and the next one goes on from there.
"""

import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from arelu_meta.data.files.checksum import CHUNK, checksums
from arelu_meta.errors import InputError

OFFLINE = "ARELU_META_OFFLINE"
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5  # transfers from one mirror, each going on where the last was cut


class UnreachableError(Exception):
    """No mirror gave the file; the message says why."""


@dataclass(frozen=True)
class Published:
    """A file as published: its name, its MD5 and the addresses of the folders that hold it."""

    name: str
    md5: str
    mirrors: tuple[str, ...]


def obtain(name: str, files: Sequence[Published], folder: Path, *, bundled: str) -> None:
    """Download the files that a set lacks; when that cannot be done, say what to put where and what runs without."""
    missing = [file for file in files if not (folder / file.name).exists()]
    try:
        if missing and os.environ.get(OFFLINE, "0") not in ("", "0"):
            raise UnreachableError(f"{OFFLINE} is set")
        for file in missing:
            fetch(file, folder)
    except UnreachableError as reason:
        absent = ", ".join(file.name for file in missing if not (folder / file.name).exists())
        raise InputError(
            f"{name}: cannot download {absent} ({reason}); put the files into {folder}, "
            f"or use the bundled {bundled!r}, which needs no download"
        ) from None


def fetch(file: Published, folder: Path) -> Path:
    """Download one file into a folder; processes that ask for the same file wait for the first and share its copy."""
    target = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{file.name}.lock"):
            if not target.exists():
                _download(file, part)
                _place(part, target)
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror or error}; free some space or choose another data root"
        ) from error
    return target


@contextmanager
def _removed_if_unwritable(part: Path) -> Iterator[None]:
    """A disk that is full gets its space back."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def _place(part: Path, target: Path) -> None:
    with _removed_if_unwritable(part), part.open("rb+") as stream:
        os.fsync(stream.fileno())  # a name must never point to bytes that are not on the disk yet
    os.replace(part, target)


def _download(file: Published, part: Path) -> None:
    reasons = []
    for mirror in file.mirrors:
        try:
            return _from_mirror(f"{mirror.rstrip('/')}/{file.name}", file.md5, part)
        except UnreachableError as reason:
            reasons.append(str(reason))
    raise UnreachableError("; ".join(reasons) or "no mirror is known")


def _from_mirror(url: str, md5: str, part: Path) -> None:
    for _ in range(ATTEMPTS):
        resumed = part.exists()
        if not _transfer(url, part):
            continue
        if checksums(part).md5 == md5:
            return
        part.unlink()
        if not resumed:
            raise UnreachableError(f"{url} sent other bytes than were published")
    raise UnreachableError(f"{url} was cut off {ATTEMPTS} times")


def _transfer(url: str, part: Path) -> bool:
    """Append what is missing of a file; False when the transfer was cut."""
    have = part.stat().st_size if part.exists() else 0
    response = _open(url, have)
    if response is None:  # nothing lies beyond what is there: the checksum decides
        return True
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        with _removed_if_unwritable(part), part.open("ab" if resumed else "wb") as stream, _progress() as progress:
            bar = progress.add_task(part.stem, total=total, completed=have)
            while chunk := _read(response):
                stream.write(chunk)
                have += len(chunk)
                progress.advance(bar, len(chunk))
            return chunk is not None and total in (None, have)


def _open(url: str, start: int) -> http.client.HTTPResponse | None:
    """Ask for a file from a byte on; None when it has no byte there."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"refused to fetch {url!r}; a mirror must be http:// or https://")
    request = urllib.request.Request(url, headers={"User-Agent": "arelu_meta"})  # noqa: S310 - checked above
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None
        raise UnreachableError(f"{url} answered {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"{url}: {getattr(error, 'reason', error)}") from error
    return response


def _read(response: http.client.HTTPResponse) -> bytes | None:
    """The next bytes, b"" at the end, None when the connection broke."""
    try:
        return response.read1(CHUNK)  # what has arrived: a silent mirror must not cost what it sent before
    except (OSError, http.client.HTTPException):
        return None


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)
