"""Files of image sets: the folders they are kept in, the cache of drawn sets, and checksums.

ARELU_META_DATA    folder below which published sets are looked for and downloaded to
ARELU_META_CACHE   folder of drawn sets, which can be drawn again at any time

Unless set, both are `arelu_meta` in the user's cache folder.
"""

import contextlib
import hashlib
import math
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arelu_meta.errors import InputError
from arelu_meta.reading import check_members, open_regular, parsing

Arrays = Mapping[str, NDArray[np.generic]]
VERSION_KEY = "cache_version"
FOLDER = "images"  # in the cache folder: what is remembered of images that do not fit into memory
CHUNK = 1 << 20  # bytes read at a time


def data_root(root: str | Path | None = None) -> Path:
    """Folder of the published sets: the argument, else `ARELU_META_DATA`, else `user_cache()`.

    >>> data_root("images").name
    'images'
    """
    chosen = root or os.environ.get("ARELU_META_DATA")
    return Path(os.path.expanduser(chosen)) if chosen else user_cache()


def cache_folder() -> Path:
    """Folder of the drawn sets: `ARELU_META_CACHE`, else `user_cache()`."""
    chosen = os.environ.get("ARELU_META_CACHE")
    return Path(os.path.expanduser(chosen)) if chosen else user_cache()


def user_cache() -> Path:
    """`arelu_meta` in the platform's folder: `XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`."""
    home, xdg = Path.home(), os.environ.get("XDG_CACHE_HOME", "")
    if sys.platform == "darwin":
        folder = home / "Library" / "Caches"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:  # the XDG specification: a relative path is to be ignored
        folder = Path(xdg) if os.path.isabs(xdg) else home / ".cache"
    return folder / "arelu_meta"


def cached_arrays(key: str, version: str, build: Callable[[], Arrays]) -> Arrays:
    """Read the arrays stored under `key`, or build and store them where there are none of this `version`.

    The cache is never needed: an unwritable folder, a full disk, a damaged or outdated file only cost the time to
    build again. Several processes may ask at once: each that finds nothing builds for itself, and the file appears
    whole or not at all.
    """
    path = cache_folder() / f"{key}.npz"
    with contextlib.suppress(InputError):  # none, or a damaged one: the checksums inside the archive tell
        stored = read_arrays(path)
        if VERSION_KEY in stored and str(stored.pop(VERSION_KEY)) == version:
            return stored
    arrays = build()
    with contextlib.suppress(OSError):  # read-only folder, full disk
        _write_npz(path, {VERSION_KEY: np.array(version), **arrays})
    return arrays


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read all arrays of an `.npz`; what its heads say is compared with what is there before memory is taken.

    Raises:
        InputError: it cannot be read, or holds more than plain arrays.
    """
    arrays: dict[str, NDArray[np.generic]] = {}
    remedy = "write it anew with np.savez"
    careful = parsing(path, what="not a readable .npz of plain arrays", remedy=remedy)
    with careful, open_regular(path) as file, zipfile.ZipFile(file) as archive:
        check_members(path, archive, packed=os.fstat(file.fileno()).st_size)
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
                read = np.lib.format.read_array_header_2_0 if version == (2, 0) else read
                if read is None:
                    raise ValueError(f"a later format {version} than plain arrays need")
                shape, fortran, dtype = read(stream)
                size = math.prod(shape) * dtype.itemsize
                if dtype.hasobject or member.file_size - stream.tell() != size:
                    raise ValueError(f"{member.filename} is not the {dtype} array that it says")
                values = np.frombuffer(bytearray(stream.read()), dtype)
                arrays[member.filename.removesuffix(".npy")] = values.reshape(shape, order="F" if fortran else "C")
    return arrays


def _write_npz(path: Path, arrays: Arrays) -> None:
    """Write beside the target and move into place, so that no reader ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@dataclass(frozen=True)
class Checksums:
    """MD5 (what the publishers of our sets give) and SHA-256 (what a run records) of the same bytes."""

    md5: str
    sha256: str


def checksums(path: Path) -> Checksums:
    """Read a file once and return its checksums."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    try:
        with open_regular(path) as stream:
            while chunk := stream.read(CHUNK):
                md5.update(chunk)
                sha256.update(chunk)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the file and its permissions") from error
    return Checksums(md5.hexdigest(), sha256.hexdigest())


def tree_sha256(folder: Path, files: Iterable[Path]) -> str:
    """SHA-256 over the relative names and the SHA-256 of many files, in the order of their names."""
    sha = hashlib.sha256()
    inside = ((path.relative_to(folder) if path.is_relative_to(folder) else path, path) for path in files)
    for name, path in sorted((relative.as_posix(), path) for relative, path in inside):
        sha.update(f"{name}\0{checksums(path).sha256}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()
