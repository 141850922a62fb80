"""Rows and columns, given as one number or two."""

from collections.abc import Sequence
from numbers import Integral
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]


def as_pair(value: int | Sequence[int]) -> Pair:
    """Read what torch's functions take."""
    if isinstance(value, Integral | int):
        return int(value), int(value)
    sides = [int(side) for side in value]
    return sides[0], sides[-1]
