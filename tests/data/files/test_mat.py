"""Matlab files: what scipy writes is read as scipy reads it, and damaged ones are one line."""

import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from arelu_meta.data.files.mat import read_mat
from arelu_meta.errors import InputError

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "X": RANDOM.integers(0, 256, (4, 5, 3, 7)).astype(np.uint8),
    "y": RANDOM.integers(1, 11, (7, 1)).astype(np.uint8),
    "small": np.array([[3]], np.int16),
    "doubles": RANDOM.normal(size=(3, 2)),
    "whole_doubles": np.array([[1.0, 2.0, 300.0]]),
    "empty": np.zeros((0, 4)),
    "singles": RANDOM.normal(size=(2, 2)).astype(np.float32),
    "long": np.array([[-(1 << 40)]], np.int64),
}


@pytest.mark.parametrize("packed", [False, True])
def test_arrays_as_scipy_reads_them(tmp_path: Path, packed: bool):
    savemat(
        tmp_path / "x.mat", {**ARRAYS, "text": "other", "cell": np.array([[1, "a"]], object)}, do_compression=packed
    )
    expected, found = loadmat(tmp_path / "x.mat"), read_mat(tmp_path / "x.mat", ARRAYS)
    assert found.keys() == ARRAYS.keys()
    for name, values in found.items():
        assert values.dtype == expected[name].dtype, name
        np.testing.assert_array_equal(values, expected[name])
    assert read_mat(tmp_path / "x.mat", ["y"]).keys() == {"y"}


def test_a_big_endian_file(tmp_path: Path):
    """One array by hand: flags of class uint8, sizes 1 x 2, the name in a small element, two bytes in another."""
    tag = lambda kind, size: kind.to_bytes(4, "big") + size.to_bytes(4, "big")  # noqa: E731
    body = tag(6, 8) + (9).to_bytes(4, "big") + bytes(4)
    body += tag(5, 8) + (1).to_bytes(4, "big") + (2).to_bytes(4, "big")
    body += bytes([0, 1, 0, 1]) + b"y\0\0\0" + bytes([0, 2, 0, 2, 7, 9, 0, 0])
    (tmp_path / "x.mat").write_bytes(bytes(124) + b"\1\0MI" + tag(14, len(body)) + body)
    assert read_mat(tmp_path / "x.mat", ["y"])["y"].tolist() == [[7, 9]]


def test_an_array_of_a_million_empty_parts_takes_no_memory_for_them(tmp_path: Path):
    """8 MiB of zeros are a million empty elements, 8 KiB packed; a tuple for each would take 200 MiB."""
    size = 8 << 20
    packed = zlib.compress((14).to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size))
    tag = (15).to_bytes(4, "little") + len(packed).to_bytes(4, "little")
    (tmp_path / "x.mat").write_bytes(bytes(124) + b"\0\1IM" + tag + packed)
    tracemalloc.start()
    try:
        assert read_mat(tmp_path / "x.mat", ["X"]) == {}
        assert tracemalloc.get_traced_memory()[1] < 4 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packed", [False, True])
def test_damaged_files_are_one_line(tmp_path: Path, packed: bool):
    path = tmp_path / "x.mat"
    savemat(path, {"X": ARRAYS["X"]}, do_compression=packed)
    whole = path.read_bytes()
    for content in (b"", whole[:100], whole[: len(whole) // 2], whole[:-9] if packed else whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"x.mat is damaged \([^\n]*; delete it and load the set again$"):
            read_mat(path, ["X"])
    if packed:  # with a checksum
        path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 255]) + whole[-5:])
        with pytest.raises(InputError, match=r"x.mat is damaged"):
            read_mat(path, ["X"])


def test_what_says_it_unpacks_to_much_is_refused_before(tmp_path: Path):
    bomb = zlib.compress((14).to_bytes(4, "little") + (2 << 30).to_bytes(4, "little") + bytes(100))
    packed = (15).to_bytes(4, "little") + len(bomb).to_bytes(4, "little") + bomb
    (tmp_path / "x.mat").write_bytes(bytes(124) + b"\0\1IM" + packed)
    with pytest.raises(InputError, match=r"x.mat takes 2048 MiB unpacked, more than 512 MiB"):
        read_mat(tmp_path / "x.mat", ["X"])


def test_an_array_that_is_none_of_numbers(tmp_path: Path):
    savemat(tmp_path / "x.mat", {"X": np.array([[1j]]), "y": "text"})
    for name in ("X", "y"):
        with pytest.raises(InputError, match=rf"{name} is no array of plain numbers"):
            read_mat(tmp_path / "x.mat", [name])
