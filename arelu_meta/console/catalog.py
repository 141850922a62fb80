"""Find the declarative files that come with the package: `tasks/*.toml` and `experiments/*.toml`.

In a wheel they lie inside the package; in a checkout or an editable install, beside it. A name or a path is accepted.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from arelu_meta.errors import InputError, unknown
from arelu_meta.reading import parsing, read_text
from arelu_meta.trust import check_values

Kind = Literal["task", "experiment"]
MOST_BYTES = 1 << 20  # of a task or an experiment
LONGEST_KEY = 1000  # characters: each part of a dotted key is a table in a table
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
    """Read a file by name or path into plain values; its name comes with them under the key of its kind.

    A file of one's own that names code has to be trusted (`trust.trusting`); those of the package name none.
    """
    path = find(kind, name_or_path)
    text = read_text(path, most=MOST_BYTES, remedy="correct it", what="not valid TOML")
    if max(map(len, re.findall(r"[\w.\"'-]*\.[\w.\"'-]*", text)), default=0) > LONGEST_KEY:
        raise InputError(f"{path} is not valid TOML: a dotted name of more than {LONGEST_KEY} characters")
    with parsing(path, what="not valid TOML", remedy="correct it"):
        content = tomllib.loads(text)
    if path.parent != folder(kind):
        check_values(content, str(path))
    return {kind: path.stem, **content}


def as_toml(values: Mapping[str, Any]) -> str:
    """Write plain values as TOML: tables in one level, options inside them as inline tables; None has no place there.

    >>> print(as_toml({"task": "mine", "data": {"dataset": "digits", "dataset_options": {"deep": True}, "test": 0.2}}))
    task = "mine"
    <BLANKLINE>
    [data]
    dataset = "digits"
    dataset_options = { "deep" = true }
    test = 0.2
    """
    lines = [f"{key} = {_toml_value(value)}" for key, value in values.items() if not isinstance(value, Mapping)]
    for name, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in table.items())]
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{json.dumps(key)} = {_toml_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # numbers, truth values and text alike
