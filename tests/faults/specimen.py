"""What mutants are made of: files, and how they are read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Specimen:
    """Files by name, which of them are damaged, and how they are read."""

    name: str
    files: dict[str, bytes]
    read: Callable[[Path], object]
    damaged: tuple[str, ...]
