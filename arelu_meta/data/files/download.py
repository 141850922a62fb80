"""Download and unpack published files: several mirrors, checksum, resume, atomic placement, one writer at a time.

A file grows as `NAME.part` and takes its name only when it is complete and its checksum is the publisher's.
An interrupted transfer leaves the part, and the next one resumes it.
"""

import gzip
import http.client
import lzma
import os
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from arelu_meta.data.files import CHUNK, checksums
from arelu_meta.errors import InputError, first_line
from arelu_meta.reading import check_size, open_regular

OFFLINE = "ARELU_META_OFFLINE"
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5  # transfers from one mirror, each going on where the last was cut


class UnreachableError(Exception):
    """No mirror gave the file; the message says why."""


@dataclass(frozen=True)
class PublishedFile:
    """A file as published: its name, its MD5 and the addresses of the folders that hold it."""

    name: str
    md5: str
    mirrors: tuple[str, ...]


def download_missing(name: str, missing: Sequence[PublishedFile], folder: Path, *, substitute: str) -> None:
    """Download the files that a set lacks; an error says what to put where, and which bundled set to use instead."""
    try:
        if missing and os.environ.get(OFFLINE, "0") not in ("", "0"):
            raise UnreachableError(f"{OFFLINE} is set")
        for file in missing:
            fetch(file, folder)
    except UnreachableError as reason:
        absent = ", ".join(file.name for file in missing if not (folder / file.name).exists())
        raise InputError(
            f"{name}: cannot download {absent} ({reason}); put the files into {folder}, "
            f"or use the bundled {substitute!r}, which needs no download"
        ) from None


def fetch(file: PublishedFile, folder: Path) -> Path:
    """Download one file into a folder; processes that ask for the same file wait for the first and share its copy."""
    target = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{file.name}.lock"):
            if not target.exists():
                _from_mirrors(file, part)
                with _removed_if_unwritable(part), part.open("rb+") as stream:
                    os.fsync(stream.fileno())  # a name must never point to bytes that are not on the disk yet
                os.replace(part, target)
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


def _from_mirrors(file: PublishedFile, part: Path) -> None:
    """Download from the first mirror that sends the published bytes, resuming what was interrupted."""
    reasons = []
    for mirror in file.mirrors:
        url, reason = f"{mirror.rstrip('/')}/{file.name}", f"was cut off {ATTEMPTS} times"
        for _ in range(ATTEMPTS):
            resumed = part.exists()
            try:
                complete = _transfer(url, part)
            except UnreachableError as error:
                reason = str(error)
                break
            if complete and checksums(part).md5 == file.md5:
                return
            if complete:
                part.unlink()
                if not resumed:
                    reason = "sent other bytes than were published"
                    break
        reasons.append(f"{url} {reason}")
    raise UnreachableError("; ".join(reasons) or "no mirror is known")


def _transfer(url: str, part: Path) -> bool:
    """Append what is missing of a file; False when the transfer was interrupted."""
    have = part.stat().st_size if part.exists() else 0
    response = _open(url, have)
    if response is None:  # nothing lies beyond what is there: the checksum decides
        return True
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        bars = Progress(
            *columns,
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        with _removed_if_unwritable(part), part.open("ab" if resumed else "wb") as stream, bars as progress:
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
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310 - checked above
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None
        raise UnreachableError(f"answered {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"failed: {getattr(error, 'reason', error)}") from error
    return response


def _read(response: http.client.HTTPResponse) -> bytes | None:
    """The next bytes, b"" at the end, None when the connection broke."""
    try:
        return response.read1(CHUNK)  # what has arrived: a silent mirror must not cost what it sent before
    except (OSError, http.client.HTTPException):
        return None


def unpack(archive: Path, folder: Path, top: str) -> Path:
    """Unpack the folder `top` of a tar archive into `folder` and return its path.

    All is written to a temporary folder and renamed when complete; a second process waits and finds it done.
    """
    target = folder / top
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{top}.lock"), tempfile.TemporaryDirectory(prefix=f".{top}-", dir=folder) as staging:
            if not target.exists():
                open_regular(archive).close()
                with tarfile.open(archive) as tar:
                    check_size(archive, sum(max(member.size, 0) for member in tar), archive.stat().st_size)
                    tar.extractall(staging, filter="data")  # refuses members, links and devices outside of the folder
                if not (Path(staging) / top).is_dir():
                    raise InputError(f"{archive} holds no folder {top!r}; is it another set's archive?")
                os.replace(Path(staging) / top, target)
    except tarfile.FilterError as error:
        raise InputError(f"{archive} is refused: {first_line(error)}; fetch it from its publisher") from error
    except (gzip.BadGzipFile, tarfile.TarError, zlib.error, EOFError, lzma.LZMAError, ValueError, MemoryError) as error:
        raise InputError(f"{archive} is damaged ({first_line(error)}); delete it and load the set again") from error
    except OSError as error:
        reason = f"{error.strerror or error}; free some space or choose another data root"
        raise InputError(f"cannot unpack {archive} into {folder}: {reason}") from error
    return target
