from pathlib import Path

import pytest

from arelu_meta.data.files.root import data_root


@pytest.fixture(autouse=True)
def linux(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def test_the_argument_wins(monkeypatch):
    monkeypatch.setenv("ARELU_META_DATA", "/big/disk")
    assert data_root("/here") == Path("/here")
    assert data_root() == Path("/big/disk")


def test_a_tilde_is_the_home_folder():
    assert data_root("~/images") == Path("/home/ada/images")


def test_the_users_cache_folder(monkeypatch):
    assert data_root() == Path("/home/ada/.cache/arelu_meta")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_root() == Path("/cache/arelu_meta")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert data_root() == Path("/home/ada/.cache/arelu_meta")


def test_the_cache_folder_of_other_platforms(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_root() == Path("/home/ada/Library/Caches/arelu_meta")
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert data_root() == Path("/local/arelu_meta")
