"""A cache of the session's own; no network."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")
    monkeypatch.delenv("ARELU_META_DATA", raising=False)


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all tests of a session: sets are drawn by the code under test, once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ARELU_META_CACHE", str(folder))
        yield folder
