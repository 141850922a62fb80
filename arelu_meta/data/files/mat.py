"""Read numeric arrays of a Matlab file (MAT 5, packed by zlib or not): all that published image sets are made of.

    file:    128 bytes of head, the last two `IM` (or `MI`: big-endian); then elements
    element: type and length, 4 bytes each; content, padded to 8 bytes; up to 4 bytes fit into the tag's second half
    array:   flags (the low byte of which is the class), sizes, name, numbers in column order; each an element

A reader of our own because a damaged file can end the process inside of scipy's.
"""

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arelu_meta.reading import check_file_size, check_size, open_regular, parsing

MATRIX, PACKED = 14, 15
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}


def read_mat(path: Path, names: Collection[str]) -> dict[str, NDArray[np.generic]]:
    """Read arrays of numbers by name.

    Args:
        path: the file.
        names: the arrays to read; others are passed over.

    Returns:
        Those of them that the file holds, with Matlab's sizes: two dimensions at least.

    Raises:
        InputError: it is damaged, no MAT 5 file, or an array that is asked for is none of numbers.
    """
    with parsing(path, remedy="delete it and load the set again"):
        with open_regular(path) as file:
            check_file_size(path, file)
            content = memoryview(file.read())
        if len(content) < 128 or bytes(content[126:128]) not in (b"IM", b"MI"):
            raise ValueError("no Matlab file of version 5")
        order = "<" if bytes(content[126:128]) == b"IM" else ">"
        found: dict[str, NDArray[np.generic]] = {}
        for kind, element in _elements(content[128:], order):
            if kind == PACKED:
                kind, element = _unpacked(path, element, order)
            if kind == MATRIX:
                found |= _array(element, order, names)
        return found


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Go through elements: type and content of each."""
    start = 0
    while start + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, start)
        if kind >> 16:  # a small one: the length in the upper half of the type
            yield kind & 0xFFFF, content[start + 4 : start + 4 + min(kind >> 16, 4)]
            start += 8
            continue
        if start + 8 + size > len(content):
            raise ValueError(f"an element of {size} bytes reaches beyond the end")
        yield kind, content[start + 8 : start + 8 + size]
        start += 8 + (size if kind == PACKED else -(-size // 8) * 8)


def _unpacked(path: Path, content: memoryview, order: str) -> tuple[int, memoryview]:
    """Unpack the one element of a packed one; its tag says how large it is before the rest is unpacked."""
    unpacking = zlib.decompressobj()
    kind, size = struct.unpack(f"{order}II", unpacking.decompress(content, 8))
    check_size(path, size, len(content))
    unpacked = unpacking.decompress(unpacking.unconsumed_tail, size) if size else b""
    if len(unpacked) != size:
        raise ValueError(f"{len(unpacked)} of {size} bytes could be unpacked")
    unpacking.decompress(unpacking.unconsumed_tail, 8)  # to the end, where the checksum is
    if not unpacking.eof:
        raise ValueError("the checksum of a packed element is missing")
    return kind, memoryview(unpacked)


def _array(content: memoryview, order: str, names: Collection[str]) -> dict[str, NDArray[np.generic]]:
    """Read one array, if it is asked for."""
    parts = list(islice(_elements(content, order), 4))  # of zeros there would be millions
    if len(parts) < 4:
        return {}
    name = bytes(parts[2][1]).decode("ascii", "replace")
    if name not in names:
        return {}
    flags, shape = struct.unpack_from(f"{order}I", parts[0][1])[0], np.frombuffer(parts[1][1], f"{order}i4").tolist()
    kind, numbers = parts[3]
    if flags & 0x800 or flags & 0xFF not in CLASSES or kind not in TYPES:
        raise ValueError(f"{name} is no array of plain numbers")
    values = np.frombuffer(numbers, order + TYPES[kind])
    if min(shape, default=-1) < 0 or math.prod(shape) != len(values):
        raise ValueError(f"{name} has {len(values)} numbers and the size {shape}")
    # A file may hold the numbers of a class in a smaller type.
    return {name: values.reshape(shape, order="F").astype(CLASSES[flags & 0xFF], copy=False)}
