"""A folder for what takes seconds to make and can be made again: rendered image sets, as `.npz` files.

The cache is never needed: an unwritable folder, a full disk, a damaged or outdated file only cost the time to build
again.
"""

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[np.generic]]
VERSION_KEY = "cache_version"


def cache_folder() -> Path:
    """Name the folder: `ARELU_META_CACHE`, else `arelu_meta` in `XDG_CACHE_HOME` or in `~/.cache`."""
    if own := os.environ.get("ARELU_META_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arelu_meta"


def cached_arrays(key: str, version: str, build: Callable[[], Arrays]) -> Arrays:
    """Read the arrays stored under `key`, or build and store them where there are none of this `version`.

    Several processes may ask at once: each that finds nothing builds for itself, and the file appears whole or not at
    all.
    """
    path = cache_folder() / f"{key}.npz"
    stored = _read(path, version)
    if stored is not None:
        return stored
    arrays = build()
    # Whatever keeps the file from being written (read-only folder, full disk), the arrays are here.
    with contextlib.suppress(OSError):
        _write(path, version, arrays)
    return arrays


def _read(path: Path, version: str) -> Arrays | None:
    """Give the arrays of a sound file of this version; the checksums inside the archive tell a damaged one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if str(archive[VERSION_KEY]) != version:
                return None
            return {name: archive[name] for name in archive.files if name != VERSION_KEY}
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return None


def _write(path: Path, version: str, arrays: Arrays) -> None:
    """Write beside the target and move into place, so that no reader ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **{VERSION_KEY: np.array(version)}, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
