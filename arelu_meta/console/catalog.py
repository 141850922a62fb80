"""Find the declarative files that come with the package: `tasks/*.toml` and `experiments/*.toml`.

In a wheel they lie inside the package; in a checkout or an editable install, beside it. A name or a path is accepted.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal

from arelu_meta.errors import InputError, unknown

Kind = Literal["task", "experiment"]
_PACKAGE = Path(__file__).parent.parent


def folder(kind: Kind) -> Path:
    """Give the folder of the built-in files of a kind."""
    inside, beside = _PACKAGE / f"{kind}s", _PACKAGE.parent / f"{kind}s"
    return inside if inside.is_dir() else beside


def names(kind: Kind) -> list[str]:
    """Names of the built-in files of a kind."""
    return sorted(path.stem for path in folder(kind).glob("*.toml"))


def find(kind: Kind, name_or_path: str) -> Path:
    """Find a file by the name of a built-in one or by its path."""
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if path.is_file():
            return path
        raise InputError(f"{kind} file {name_or_path!r} does not exist")
    if name_or_path not in names(kind):
        raise unknown(kind, name_or_path, names(kind))
    return folder(kind) / f"{name_or_path}.toml"


def read(kind: Kind, name_or_path: str) -> dict[str, Any]:
    """Read a file by name or path into plain values; its name comes with them under the key of its kind."""
    path = find(kind, name_or_path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error
    return {kind: path.stem, **content}
