"""The data root: the folder below which published sets are looked for and downloaded to."""

import os
import sys
from pathlib import Path

VARIABLE = "ARELU_META_DATA"


def data_root(root: str | Path | None = None) -> Path:
    """Give the data root: the argument, else `ARELU_META_DATA`, else `arelu_meta` in the user's cache folder.

    The cache folder is the platform's: `XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`.

    >>> data_root("images").name
    'images'
    """
    chosen = root or os.environ.get(VARIABLE)
    return Path(os.path.expanduser(chosen)) if chosen else _cache_folder() / "arelu_meta"


def _cache_folder() -> Path:
    home = Path.home()
    places = {
        "darwin": home / "Library" / "Caches",
        "win32": Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local"),
    }
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    return places.get(sys.platform) or (Path(xdg) if os.path.isabs(xdg) else home / ".cache")


def existing_folder(root: Path, candidates: tuple[str, ...], files: tuple[str, ...]) -> Path | None:
    """Find the first of some folders below the root that holds at least one of the files."""
    folders = (root / candidate for candidate in candidates)
    return next((folder for folder in folders if any((folder / file).is_file() for file in files)), None)
