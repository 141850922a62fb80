"""Read a pickle that holds nothing but arrays, lists, dicts, strings and numbers; anything else in it is refused.

Python's unpickler calls whatever the file names. This one gives the file only stand-ins of its own, so that not even
numpy's constructors run on what a stranger wrote.
"""

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from arelu_meta.errors import InputError

ELEMENTS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f4", "f8", "b1"}
_ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")


class _Dtype:
    """Stand-in for `numpy.dtype`: the code of a plain number type and its byte order."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in ELEMENTS:
            raise pickle.UnpicklingError(f"array elements of type {code!r} are not plain numbers")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1] if state[1] in ("<", ">") else "="


class _Array:
    """Stand-in for `numpy.ndarray`: takes the state that numpy writes, (version, shape, dtype, fortran, bytes)."""

    def __init__(self, *_: object) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype):
            raise pickle.UnpicklingError("an array without a plain number type")
        content = content.encode("latin1") if isinstance(content, str) else content  # Python 2 wrote bytes as text
        array = np.frombuffer(content, np.dtype(dtype.order + dtype.code))
        if len(array) != math.prod(shape):
            raise pickle.UnpicklingError(f"an array of {len(array)} elements cannot have the shape {shape}")
        self.array = array.reshape(shape, order="F" if fortran else "C")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if (name == "_reconstruct" and module in _ARRAY_MODULES) or (module, name) == ("numpy", "ndarray"):
            return _Array
        if (module, name) == ("numpy", "dtype"):
            return _Dtype
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in protocol 2
            # A new function each time: a pickle could leave attributes on a lasting one.
            return lambda text, _encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it names {f'{module}.{name}'!r}")


def read_plain_pickle(path: Path) -> dict[str, Any]:
    """Read a pickled dict whose values are arrays, lists, strings and numbers."""
    try:
        with path.open("rb") as stream:
            content = _PlainUnpickler(stream, encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(
            f"{path} is refused: not a plain pickle of arrays ({error}); get it from its publisher"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, not a dict; get it from its publisher")
    return {_text(key): value.array if isinstance(value, _Array) else value for key, value in content.items()}


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)
