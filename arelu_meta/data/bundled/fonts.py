"""The fonts inside matplotlib: their files, the characters they have, and whether they are the publisher's own."""

import base64
import hashlib
import importlib.metadata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import matplotlib
from matplotlib.ft2font import FT2Font
from PIL import ImageFont

from arelu_meta.data.imageset import Provenance


def font_path(name: str) -> Path:
    """Find the file of a font by its name without ending, such as `DejaVuSans`."""
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


@cache
def code_points(name: str) -> frozenset[int]:
    """Give the code points the font has a drawing of, from its own character map."""
    return frozenset(FT2Font(str(font_path(name))).get_charmap())


@cache
def open_font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Open a font for drawing; the basic layout engine is the one that every build of Pillow has."""
    return ImageFont.truetype(font_path(name), size, layout_engine=ImageFont.Layout.BASIC)


def font_provenance(names: Iterable[str]) -> Provenance:
    """Hash the fonts a set is drawn from; verified when each is what the record of the matplotlib wheel says."""
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in map(font_path, names)}
    published = _published_hashes()
    return Provenance(
        source=f"drawn from the fonts of matplotlib {matplotlib.__version__}",
        verified=all(published.get(name) == sha for name, sha in files.items()),
        files=files,
    )


def _published_hashes() -> dict[str, str]:
    """Read the SHA-256 of each font from the installed wheel's RECORD, which holds them in URL-safe base 64."""
    hashes = {}
    for file in importlib.metadata.files("matplotlib") or ():
        if file.suffix == ".ttf" and file.hash is not None and file.hash.mode == "sha256":
            hashes[file.name] = base64.urlsafe_b64decode(file.hash.value + "=").hex()
    return hashes
