"""Rows and columns, given as one number or two."""

from collections.abc import Sequence
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]


def as_pair(value: int | Sequence[int]) -> Pair:
    """Read what torch's functions take."""
    both = [value] * 2 if isinstance(value, int) else [int(side) for side in value]
    return both[0], both[-1]
