"""No network."""

import pytest


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")
    monkeypatch.delenv("ARELU_META_DATA", raising=False)
