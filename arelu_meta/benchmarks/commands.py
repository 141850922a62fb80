"""Whole commands in processes of their own: start-up, several seeds, ranks, and what tracking costs."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.benchmarks.timing import MethodClock
from arelu_meta.console import catalog
from arelu_meta.console.flags import validated
from arelu_meta.errors import RunError
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.runtime.hardware import processor_time_of_children
from arelu_meta.store.tracker import Tracker

SEEDS = 5
FEW, MANY = 5, 25  # iterations; their difference is free of start-up
REPEATS = 2
QUICK = ("--test-episodes", "32", "--validation-episodes", "32", "--validate-every", "1000")


def bench_commands(_root: str | None = None) -> Iterator[BenchReport]:
    """Compare commands on the bundled digits."""
    help_seconds = min(seconds_of([("-m", "arelu_meta.maml", "--help")])[1] for _ in range(REPEATS))
    bare = min(seconds_of([("-c", "pass")])[1] for _ in range(REPEATS))
    rows = [
        Row("arelu_meta.maml --help", help_seconds, 1.0, "CPU time"),
        Row("python alone", bare, bare / help_seconds, "CPU time"),
    ]
    yield BenchReport("start-up", rows)
    train = ("-m", "arelu_meta.classify", "--task", "digits_classify", "--epochs", "5")
    one = [(*train, "--seeds", f"0-{SEEDS - 1}")]
    several = [(*train, "--seed", str(seed)) for seed in range(SEEDS)]
    pairs = [(seconds_of(one)[0], seconds_of(several)[0]) for _ in range(REPEATS)]
    together, apart = (min(side) for side in zip(*pairs, strict=True))
    rows = [Row("one command", together, 1.0), Row(f"{SEEDS} commands", apart, apart / together)]
    yield BenchReport(f"{SEEDS} seeds of digits_classify, 5 epochs, set-up included", rows)
    yield _ranks()
    yield _tracking()


def _ranks() -> BenchReport:
    two = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    seconds: dict[str, list[float]] = {"2 ranks": [], "1 process": []}  # of an iteration, by repeat
    for _ in range(REPEATS):
        for launcher, repeats in zip((two, ()), seconds.values(), strict=True):
            few, many = (
                seconds_of([(*launcher, "-m", "arelu_meta.maml", "--iterations", str(count), *QUICK)])[0]
                for count in (FEW, MANY)
            )
            repeats.append((many - few) / (MANY - FEW))
    rows = [Row(name, min(repeats), min(repeats) / min(seconds["2 ranks"])) for name, repeats in seconds.items()]
    return BenchReport("outer step of make maml's task, one thread per process, start-up taken off", rows)


def _tracking() -> BenchReport:
    """Time inside the tracker, of all the time a run takes."""
    clock = MethodClock()
    methods = [name for name, value in vars(Tracker).items() if callable(value) and not name.startswith("_")]
    spec = validated(FewShotSpec, catalog.read("task", "digits"), "digits")
    with tempfile.TemporaryDirectory() as folder, own_store(Path(folder)), clock.timing(Tracker, methods):
        start = time.perf_counter()
        run(spec, Execution(experiment="bench"))
        rest = time.perf_counter() - start - clock.seconds
    rows = [
        Row("run without it", rest, 1.0),
        Row("tracking", clock.seconds, clock.seconds / rest, f"{clock.calls} calls"),
    ]
    return BenchReport("tracking in MLflow, the run of make maml", rows, of="without")


def seconds_of(commands: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Run commands of Python one after the other, one thread each, in an empty folder with a store of their own.

    Returns:
        Seconds by the clock, and of CPU time (0 on Windows, which does not count that of children).
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    start, before = time.perf_counter(), processor_time_of_children()
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            done = subprocess.run(  # noqa: S603  (our own commands)
                [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RunError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return time.perf_counter() - start, processor_time_of_children() - before


@contextmanager
def own_store(folder: Path) -> Iterator[None]:
    """Work in a folder with a store of its own, named in full: MLflow remembers stores by name."""
    back, store = Path.cwd(), os.environ.get("MLFLOW_TRACKING_URI")
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder.resolve() / 'mlflow.db'}"
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(back)
        del os.environ["MLFLOW_TRACKING_URI"]
        if store is not None:
            os.environ["MLFLOW_TRACKING_URI"] = store
