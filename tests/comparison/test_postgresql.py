"""A comparison into an MLflow server on a real PostgreSQL, both started here on the loopback interface."""

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.comparison import tiny

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
PROGRAMS = {
    name: shutil.which(name) or next((str(folder / name) for folder in reversed(BINARIES)), None)
    for name in ("initdb", "postgres")
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(None in PROGRAMS.values(), reason="no PostgreSQL server here (Debian: apt install postgresql)"),
    pytest.mark.skipif(importlib.util.find_spec("psycopg2") is None, reason="psycopg2 is not installed"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(ready, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "did not start"
        time.sleep(0.3)


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The address of an empty database; its server refuses to be root, so root lends it another user."""
    user = "postgres" if os.getuid() == 0 else None
    if user and user not in {entry.pw_name for entry in pwd.getpwall()}:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        data = f"{folder}/data"
        as_user = {"user": user, "cwd": folder}
        subprocess.run(
            [PROGRAMS["initdb"], "-D", data, "-A", "trust", "-U", "mlflow"],
            check=True,
            stdout=subprocess.DEVNULL,
            **as_user,
        )
        options = ["-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", folder]
        with subprocess.Popen([PROGRAMS["postgres"], *options], stderr=subprocess.DEVNULL, **as_user) as server:
            try:
                wait_until(lambda: answers(port))
                yield f"postgresql://mlflow@127.0.0.1:{port}/postgres"
            finally:
                server.terminate()


@pytest.fixture
def mlflow_server(postgresql: str, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    # Which driver, because SQLAlchemy's own choice has changed with its versions.
    command += ["--backend-store-uri", postgresql.replace("postgresql:", "postgresql+psycopg2:")]
    command += ["--artifacts-destination", str(tmp_path / "artifacts"), "--host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}"

    def healthy() -> bool:
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(healthy, 180)
            yield address
        finally:
            server.terminate()


def test_a_comparison_through_a_server_into_postgresql(
    mlflow_server: str, postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import psycopg2

    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    monkeypatch.setattr(tiny, "environment", lambda folder: {"ARELU_META_RUNS": str(folder / "runs"), "TROUBLE": ""})
    tiny.write(tmp_path)
    done = tiny.compare(tmp_path, "tiny.toml", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert f"{mlflow_server}/#/experiments/" in done.stdout
    again = tiny.compare(tmp_path, "tiny.toml", "--workers", "2")
    assert "4 cells, 4 of them finished before" in again.stderr
    connection = psycopg2.connect(postgresql)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT status, count(*) FROM runs GROUP BY status")
        assert cursor.fetchall() == [("FINISHED", 5)]  # four cells and their parent
        cursor.execute("SELECT count(*) FROM latest_metrics WHERE key = 'test/accuracy'")
        assert cursor.fetchall() == [(4,)]
    connection.close()
    import arelu_meta

    assert len(arelu_meta.results("tiny")) == 4
