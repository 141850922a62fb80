"""A machine without published image sets."""

from pathlib import Path

import pytest


@pytest.fixture
def _no_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without published sets, where downloading one is an error."""
    monkeypatch.setenv("ARELU_META_DATA", str(tmp_path))

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a benchmark downloads")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
