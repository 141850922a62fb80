"""A folder for results, made before they are worked for."""

import os
from pathlib import Path

from arelu_meta.errors import InputError


def output_folder(path: Path) -> Path:
    """Make the folder, or say in one line why it cannot take files."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}; choose another") from error
    if not os.access(path, os.W_OK):
        raise InputError(f"cannot write to the folder {path}; choose another")
    return path
