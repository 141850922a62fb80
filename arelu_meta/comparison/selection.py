"""Seeds and arms as they are written on the command line. Nothing here imports torch."""

from collections.abc import Mapping, Sequence

from arelu_meta.errors import InputError

Value = bool | int | float | str


def written(value: Value) -> str:
    """Write a value of an axis as tables do.

    >>> written(2.0), written(1e-4), written("relu")
    ('2', '0.0001', 'relu')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_only(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read `AXIS=VALUE,VALUE` words.

    >>> read_only(["activation=relu,arelu"])
    {'activation': ('relu', 'arelu')}
    """
    chosen: dict[str, tuple[str, ...]] = {}
    for word in words:
        axis, equals, values = word.partition("=")
        if not equals or not values:
            raise InputError(f"--only {word!r} is not of the form AXIS=VALUE,VALUE")
        chosen[axis] = chosen.get(axis, ()) + tuple(values.split(","))
    return chosen


def is_same(value: Value, word: str) -> bool:
    """Tell whether a word names a value; numbers are compared as numbers, so that 1e-4 is 0.0001.

    >>> is_same(0.0001, "1e-4"), is_same("relu", "relu6")
    (True, False)
    """
    if isinstance(value, (bool, str)):
        return str(value).lower() == word.lower()
    try:
        return float(word) == float(value)
    except ValueError:
        return False


def check_only(only: Mapping[str, Sequence[str]], grid: Mapping[str, Sequence[Value]]) -> None:
    """Refuse axes and values that the grid does not have."""
    for axis, words in only.items():
        if axis not in grid:
            raise InputError(f"--only {axis}: no such axis; axes here: {', '.join(grid)}")
        for word in words:
            if not any(is_same(value, word) for value in grid[axis]):
                known = ", ".join(map(written, grid[axis]))
                raise InputError(f"--only {axis}={word}: the experiment has no such value; known: {known}")
