"""`mlflow models serve` in a process of its own, and requests to it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@contextmanager
def serving(model: str, log: Path) -> Iterator[str]:
    """Serve a model by its URI on the loopback interface, and give the address that takes requests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # MLflow starts `uvicorn` by name
    command = ["models", "serve", "-m", model, "--env-manager", "local", "--port", str(port)]
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *command],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}/ping", log)
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)


def _wait(process: subprocess.Popen, url: str, log: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the scoring server does not answer: {log.read_text()[-2000:]}")


def post_inputs(url: str, inputs: Any) -> tuple[int, str]:
    """Send `{"inputs": ...}`; gives status and answer."""
    body = json.dumps({"inputs": inputs}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
