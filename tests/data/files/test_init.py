import io
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from arelu_meta.data.files import cache_folder, cached_arrays, data_root


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Builder:
    """Counts how often it had to build."""

    def __init__(self, value=7):
        self.value, self.calls = value, 0

    def __call__(self):
        self.calls += 1
        return {"x": np.full((50, 4), self.value, dtype=np.uint8), "n": np.arange(3)}


# Folders


@pytest.fixture
def linux(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/ada")
    for name in ("ARELU_META_CACHE", "ARELU_META_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_the_argument_wins(monkeypatch):
    monkeypatch.setenv("ARELU_META_DATA", "/big/disk")
    assert data_root("/here") == Path("/here")
    assert data_root() == Path("/big/disk")


@pytest.mark.usefixtures("linux")
def test_a_tilde_is_the_home_folder(monkeypatch):
    assert data_root("~/images") == Path("/home/ada/images")
    monkeypatch.setenv("ARELU_META_CACHE", "~/drawn")
    assert cache_folder() == Path("/home/ada/drawn")


@pytest.mark.usefixtures("linux")
@pytest.mark.parametrize("folder", [data_root, cache_folder])
def test_published_and_drawn_sets_share_the_users_cache(monkeypatch, folder):
    """They disagreed on macOS, on Windows and about a relative XDG_CACHE_HOME."""
    assert folder() == Path("/home/ada/.cache/arelu_meta")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert folder() == Path("/cache/arelu_meta")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert folder() == Path("/home/ada/.cache/arelu_meta")
    monkeypatch.setattr("sys.platform", "darwin")
    assert folder() == Path("/home/ada/Library/Caches/arelu_meta")
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert folder() == Path("/local/arelu_meta")


@pytest.mark.usefixtures("linux")
def test_drawn_sets_may_have_a_folder_to_themselves(monkeypatch):
    monkeypatch.setenv("ARELU_META_CACHE", "/drawn")
    assert cache_folder() == Path("/drawn")
    assert data_root() == Path("/home/ada/.cache/arelu_meta")


# Cache


def test_second_call_reads_what_the_first_built(folder):
    build = Builder()
    first, second = cached_arrays("set", "1", build), cached_arrays("set", "1", build)
    assert build.calls == 1
    assert set(second) == {"x", "n"}
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
        assert first[name].dtype == second[name].dtype
    assert [path.name for path in folder.iterdir()] == ["set.npz"]


def test_other_version_is_built_and_replaces(folder):
    cached_arrays("set", "1", Builder(1))
    assert cached_arrays("set", "2", Builder(2))["x"][0, 0] == 2
    again = Builder(3)
    assert cached_arrays("set", "2", again)["x"][0, 0] == 2
    assert again.calls == 0
    assert len(list(folder.iterdir())) == 1


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(3))
    return file.getvalue()


def _flip_a_pixel(content: bytes) -> bytes:
    where = content.index(b"\x07" * 100) + 50
    return content[:where] + b"\x08" + content[where + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda _: b"",
        lambda _: b"not a zip",
        lambda _: _npy(),
        _flip_a_pixel,
    ],
    ids=["cut short", "empty", "other format", "one array", "one wrong byte"],
)
def test_damaged_file_is_built_again(folder, damage):
    cached_arrays("set", "1", Builder())
    path = folder / "set.npz"
    path.write_bytes(damage(path.read_bytes()))
    build = Builder()
    assert (cached_arrays("set", "1", build)["x"] == 7).all()
    assert build.calls == 1
    cached_arrays("set", "1", build)
    assert build.calls == 1  # mended


def test_pickled_content_is_not_read(folder):
    folder.mkdir()
    np.savez(folder / "set.npz", cache_version=np.array("1"), x=np.array([{"a": "pickle"}], dtype=object))
    build = Builder()
    assert (cached_arrays("set", "1", build)["x"] == 7).all()
    assert build.calls == 1


def test_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "file" / "cache"))
    assert (cached_arrays("set", "1", Builder())["x"] == 7).all()


def test_full_disk_leaves_nothing_behind(folder, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert (cached_arrays("set", "1", Builder())["x"] == 7).all()
    assert list(folder.iterdir()) == []


def _ask(barrier, results):
    barrier.wait(timeout=60)
    results.put(int(cached_arrays("set", "1", Builder())["x"].sum()))


def test_several_processes_at_once(folder):
    """Four processes ask at the same moment; each gets 50 * 4 * 7 = 1400 and one file remains."""
    spawn = multiprocessing.get_context("spawn")  # forking a process that has run torch threads can hang
    barrier, results = spawn.Barrier(4), spawn.Queue()
    workers = [spawn.Process(target=_ask, args=(barrier, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert [results.get(timeout=60) for _ in workers] == [1400] * 4
    for worker in workers:
        worker.join(timeout=60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert [path.name for path in folder.iterdir()] == ["set.npz"]
