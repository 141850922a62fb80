"""The published images, where they are at hand; a cache of the session's own; no network."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")
    monkeypatch.delenv("ARELU_META_DATA", raising=False)


@pytest.fixture(scope="session")
def published_data() -> Path:
    """The data root with the published sets: `ARELU_META_TEST_DATA`, or unpacked from beside the project."""
    if root := os.environ.get("ARELU_META_TEST_DATA"):
        return Path(root)
    script = PROJECT.parent / "shared" / "data" / "unpack.py"
    if not script.exists():
        pytest.skip("no published images: ARELU_META_TEST_DATA is not set and ../shared/data/unpack.py is not there")
    root = Path(tempfile.gettempdir()) / "arelu_meta-test-data"
    with FileLock(f"{root}.lock"):  # two test sessions may unpack at the same moment
        subprocess.run([sys.executable, script, root], check=True, stdout=subprocess.DEVNULL)
    return root


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all tests of a session: sets are drawn by the code under test, once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ARELU_META_CACHE", str(folder))
        yield folder
