"""Cells on a Ray cluster: two nodes on this machine, one of them killed in the middle."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arelu_meta.comparison.worker import environment
from tests.comparison import tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
# A cluster of its own process: Ray's own warnings are not this suite's.
CLUSTER = """
import json, sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(json.dumps({"address": cluster.address}), flush=True)
for line in sys.stdin:
    if line == "kill\\n":
        cluster.remove_node(second, allow_graceful=False)
        print("killed", flush=True)
    else:
        break
cluster.shutdown()
"""


def finished(folder: Path) -> int:
    return sum(status == "FINISHED" for _, status, _ in tiny.cells(folder))


def running(folder: Path) -> int:
    return sum(status == "RUNNING" for _, status, _ in tiny.cells(folder))


def test_a_node_dies_and_every_cell_ends_once(tmp_path: Path, new_store: Path):
    shutil.copy(new_store, tmp_path / "mlflow.db")
    tiny.write(tmp_path, ("iterations = 4", "iterations = 200"), ("seeds = [0, 1]", "seeds = [0, 1, 2]"))
    environment = {**tiny.environment(tmp_path), "RAY_DISABLE_IMPORT_WARNING": "1"}
    pipe = subprocess.PIPE
    cluster = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert cluster.stdout is not None
        assert cluster.stdin is not None
        address = json.loads(next(line for line in cluster.stdout if line.startswith("{")))["address"]
        os.environ["RAY_ADDRESS"] = address
        runner = tiny.start(tmp_path, "tiny.toml", "--on", "ray")
        end = time.monotonic() + 200
        while not (finished(tmp_path) >= 1 and running(tmp_path) == 2) and time.monotonic() < end:
            assert runner.poll() is None, runner.communicate()
            time.sleep(0.2)
        cluster.stdin.write("kill\n")
        cluster.stdin.flush()
        assert next(cluster.stdout) == "killed\n"
        assert finished(tmp_path) < 6  # in the middle
        _, err = runner.communicate(timeout=300)
        assert runner.returncode == 0, err
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        cluster.communicate("end\n", timeout=60)
    places = sorted((place["activation"], place["seed"]) for place, _, _ in tiny.cells(tmp_path))
    assert places == [(activation, seed) for activation in ("arelu", "relu") for seed in (0, 1, 2)]
    assert {status for _, status, _ in tiny.cells(tmp_path)} == {"FINISHED"}


def test_more_than_the_cluster_has(tmp_path: Path, new_store: Path):
    """A cell that fits nowhere would wait for ever."""
    shutil.copy(new_store, tmp_path / "mlflow.db")
    tiny.write(tmp_path)
    runner = tiny.start(tmp_path, "tiny.toml", "--on", "ray", "--gpus", "0.5")
    _, err = runner.communicate(timeout=120)
    assert runner.returncode == 2, err
    assert "error: a cell asks for 0.5 GPUs, but no node of the cluster has more than 0; lower --gpus" in err
    assert tiny.cells(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_an_interrupted_runner_closes_its_runs(
    tmp_path: Path, new_store: Path, number: signal.Signals, code: int, word: str
):
    """Cells that run elsewhere are told to end, and say so in the store; the same command goes on."""
    shutil.copy(new_store, tmp_path / "mlflow.db")
    tiny.write(tmp_path, ("iterations = 4", "iterations = 5000"), ("seeds = [0, 1]", "seeds = [0]"))
    runner = tiny.start(tmp_path, "tiny.toml", "--on", "ray", "--workers", "2")
    end = time.monotonic() + 200
    while running(tmp_path) < 2 and time.monotonic() < end:
        assert runner.poll() is None, runner.communicate()
        time.sleep(0.2)
    runner.send_signal(number)
    _, err = runner.communicate(timeout=90)
    assert runner.returncode == code, err
    assert err.endswith(f"{word}\n")
    assert "to resume: python -m arelu_meta.compare tiny.toml --on ray" in err
    assert "***" not in err  # Ray's own account of a signal
    assert [status for _, status, _ in tiny.cells(tmp_path)] == ["KILLED", "KILLED"]


def wait_until_it_listens(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)


def test_a_cluster_with_a_token(tmp_path: Path, new_store: Path):
    """Who has no token is not let in, and is told of it in one line."""
    shutil.copy(new_store, tmp_path / "mlflow.db")
    tiny.write(tmp_path)
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    closed = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
    start = [*ray, "start", "--head", "--port", "6397", "--num-cpus", "1", "--include-dashboard", "false", "--block"]
    head = subprocess.Popen(start, env=closed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_it_listens(6397)
        for token, rejected in (("1" * 64, True), ("", True), ("0" * 64, False)):
            given = {"RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}
            with environment({"RAY_ADDRESS": "127.0.0.1:6397", "RAY_AUTH_MODE": "token", **given}):
                runner = tiny.start(tmp_path, "tiny.toml", "--on", "ray")
            _, err = runner.communicate(timeout=300)
            if rejected:
                assert runner.returncode == 2, err
                (_, line) = err.splitlines()  # the first counts the cells
                assert line.startswith("error: no Ray cluster at RAY_ADDRESS 127.0.0.1:6397: ")
                assert line.endswith("set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN")
                assert tiny.cells(tmp_path) == []
            else:
                assert runner.returncode == 0, err
                assert finished(tmp_path) == 4
    finally:
        head.terminate()
        head.wait(timeout=60)
