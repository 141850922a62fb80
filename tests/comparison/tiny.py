"""A comparison of seconds: two activations, two seeds, a few iterations on the digits of scikit-learn."""

import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from arelu_meta.compare import main
from arelu_meta.comparison.overview import Overview
from arelu_meta.comparison.worker import CellOutcome, Job, run_cell

ROOT = Path(__file__).parent.parent.parent
EXPERIMENT = """
summary = "tiny"
title = "A tiny comparison"
question = "Does it run?"
task = "digits"
seeds = [0, 1]

[settings]
episode = { ways = 2, queries = 2, test_queries = 3 }
training = { iterations = 4, meta_batch = 2, inner_steps = 1, inner_lr = 0.05 }
evaluation = { test_episodes = 4, validation_episodes = 2, validate_every = 2 }

[grid]
network.activation = ["relu", "arelu"]

[report]
curves = ["train/accuracy", "test/accuracy_by_inner_step"]
validation_metric = "validation/accuracy"
"""


# What a shell starts in the background ignores Ctrl-C, and so would its children; a test that sends one wants it heard.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from arelu_meta.compare import main
sys.exit(main(sys.argv[1:]))
"""


def write(folder: Path, *changes: tuple[str, str], name: str = "tiny") -> Path:
    """Write the experiment into a folder, with some of its words replaced."""
    text = EXPERIMENT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def environment(folder: Path) -> dict[str, str]:
    """Where a command run in this folder keeps everything."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "ARELU_META_RUNS": str(folder / "runs"),
        "TROUBLE": str(folder),
    }


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command in this folder."""
    command = [sys.executable, "-c", COMMAND, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=pipe, stderr=pipe, text=True)


def compare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this folder to its end; the runner in this process, which has loaded everything already."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        for name, value in environment(folder).items():
            patch.setenv(name, value)
        code = main(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def query(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask the store's database itself."""
    with closing(sqlite3.connect(folder / "mlflow.db", timeout=30)) as connection:
        return connection.execute(sql).fetchall()


def cells(folder: Path) -> list[tuple[dict[str, Any], str, str]]:
    """Place, status and parent of every run of a cell that is not deleted."""
    rows = query(
        folder,
        "SELECT place.value, runs.status, parent.value FROM runs "
        "JOIN tags place ON place.run_uuid = runs.run_uuid AND place.key = 'comparison.cell' "
        "JOIN tags parent ON parent.run_uuid = runs.run_uuid AND parent.key = 'mlflow.parentRunId' "
        "WHERE runs.lifecycle_stage = 'active'",
    )
    return [(json.loads(place), status, parent) for place, status, parent in rows]


def parents(folder: Path) -> list[tuple[str, str]]:
    """Id and status of every parent run; of those that shards make at the same moment, all but one are deleted."""
    return query(
        folder,
        "SELECT runs.run_uuid, status FROM runs JOIN tags ON tags.run_uuid = runs.run_uuid AND key = 'comparison.hash' "
        "WHERE lifecycle_stage = 'active'",
    )


def final_table(folder: Path) -> str:
    """The table of runs in the report, without what differs between two runs of the same."""
    (path,) = (folder / "runs").glob("comparison-*/report/runs.csv")
    lines = [line.split(",") for line in path.read_text().splitlines()]
    beside = ("run_id", "commit", "machine", "threads", "kernels")
    kept = [number for number, name in enumerate(lines[0]) if name not in beside and not name.endswith("seconds")]
    return "\n".join(",".join(line[number] for number in kept) for line in lines)


class InProcess:
    """Workers that run cells in this process, one after another: what a test has patched holds for them too."""

    count = 1

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def run(self, jobs: Sequence[Job], overview: Overview) -> Iterator[CellOutcome]:
        """Run all jobs; none is retried."""
        for job in jobs:
            outcome = run_cell(job)
            overview.on_end(outcome)
            yield outcome
