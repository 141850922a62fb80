"""Unpack a published archive: members that would leave their folder are refused, and nothing appears half-way."""

import gzip
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from filelock import FileLock

from arelu_meta.errors import InputError


def unpack(archive: Path, folder: Path, top: str) -> Path:
    """Unpack the folder `top` of a tar or zip archive into `folder`; give the unpacked folder.

    All is written to a temporary folder and renamed when whole; a second process waits and finds it done.
    """
    target = folder / top
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{top}.lock"):
            if not target.exists():
                _unpack(archive, target)
    except (gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{archive} is damaged ({error}); delete it and load the set again") from error
    except OSError as error:
        raise InputError(
            f"cannot unpack {archive} into {folder}: {error.strerror or error}; free some space or change the data root"
        ) from error
    return target


def _unpack(archive: Path, target: Path) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, content in _members(archive):
            path = staging / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as stream:
                shutil.copyfileobj(content, stream)
        if not (staging / target.name).is_dir():
            raise InputError(f"{archive} holds no folder {target.name!r}; is it another set's archive?")
        os.replace(staging / target.name, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Give name and content of each file, after all names were found harmless."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            for entry in entries:
                _check(archive, entry.filename, link=stat.S_ISLNK(entry.external_attr >> 16))
            yield from ((entry.filename, opened.open(entry)) for entry in entries if not entry.is_dir())
        return
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            _check(archive, member.name, link=not (member.isreg() or member.isdir()))
        for member in members:
            content = tar.extractfile(member)
            if content is not None:
                yield member.name, content


def _check(archive: Path, name: str, *, link: bool) -> None:
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.is_absolute() or windows.drive or ".." in windows.parts:
        raise InputError(f"{archive}: refused, its member {name!r} would leave the folder; fetch it from its publisher")
    if link:
        raise InputError(f"{archive}: refused, its member {name!r} is a link or a device; fetch it from its publisher")
