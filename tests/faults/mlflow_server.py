"""A real MLflow server on this machine, to be killed and started again at the same address."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

USER, PASSWORD = "user", "s3cr3t-p4ss"
HOST = "127.0.0.1"


def free_port() -> int:
    """Find a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def warm_up_server() -> None:
    """Import what a server imports, so that `Server(fork=True)` starts in a moment."""
    os.environ["_MLFLOW_SGI_NAME"] = "uvicorn"
    import mlflow.server.fastapi_app
    import uvicorn  # noqa: F401

    assert mlflow.server.fastapi_app.app


def _make_tables(database: str) -> None:
    """Have the tables of the database made, as `mlflow server` does before its workers begin."""
    child = os.fork()
    if not child:
        try:
            from mlflow.server.handlers import initialize_backend_stores

            initialize_backend_stores(database, database, "mlflow-artifacts:/")
        finally:
            os._exit(0)
    os.waitpid(child, 0)


class Server:
    """A server over a database, with its artifacts in `artifacts/` of a folder.

    Args:
        folder: takes database, artifacts and log
        database: address of the database; an SQLite file in the folder unless given
        template: an SQLite file with MLflow's tables to begin with
        fork: from this process, after `warm_up_server`; else by the command `mlflow server`
        workers: processes that answer
    """

    def __init__(
        self, folder: Path, *, database: str = "", template: Path | None = None, fork: bool = False, workers: int = 1
    ) -> None:
        self.folder, self.port, self._fork, self._workers = folder, free_port(), fork, workers
        self.path = folder / "server.db"
        self._database = database or f"sqlite:///{self.path}"
        self._pid = 0
        if template is not None:
            shutil.copy(template, self.path)

    @property
    def address(self) -> str:
        """Where it answers, with a password, which it does not ask for and nobody may see."""
        return f"http://{USER}:{PASSWORD}@{HOST}:{self.port}"

    def start(self) -> "Server":
        """Start it, in a process group of its own; it may take a while until it answers."""
        with (self.folder / "server.log").open("ab") as log:
            if self._fork:
                self._pid = os.fork()
                if not self._pid:
                    self._serve(log.fileno())
            else:
                command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", self._database]
                command += ["--artifacts-destination", str(self.folder / "artifacts"), "--host", HOST]
                command += ["--port", str(self.port), "--workers", str(self._workers)]
                process = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=self.folder
                )
                process.returncode = 0  # waited for by its number
                self._pid = process.pid
        return self

    def _serve(self, log: int) -> None:
        """Be the server, as `mlflow server` starts it; does not return."""
        try:
            os.setsid()
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self.folder)
            from mlflow.server.constants import (
                ARTIFACT_ROOT_ENV_VAR,
                ARTIFACTS_DESTINATION_ENV_VAR,
                BACKEND_STORE_URI_ENV_VAR,
                SERVE_ARTIFACTS_ENV_VAR,
            )

            os.environ[BACKEND_STORE_URI_ENV_VAR] = self._database
            os.environ[ARTIFACTS_DESTINATION_ENV_VAR] = str(self.folder / "artifacts")
            os.environ[ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
            os.environ[SERVE_ARTIFACTS_ENV_VAR] = "true"
            _make_tables(self._database)
            import uvicorn
            from mlflow.server.fastapi_app import app

            with socket.socket() as listening:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind((HOST, self.port))
                for _ in range(self._workers - 1):
                    if not os.fork():
                        break
                uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
        finally:
            os._exit(1)

    def wait(self, seconds: float = 240.0) -> "Server":
        """Wait until it answers."""
        import urllib.request

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{self.port}/health", timeout=5):
                return self
            time.sleep(0.1)
        raise RuntimeError(f"no server: {(self.folder / 'server.log').read_text(errors='replace')[-800:]}")

    def kill(self) -> None:
        """End it without a word to it."""
        if self._pid:
            with suppress(ProcessLookupError, ChildProcessError):
                os.killpg(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = 0
