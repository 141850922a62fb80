"""Whole commands in processes of their own: seeds together, ranks, start-up, and what tracking costs."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from arelu_meta.benchmarks.report import BenchReport, Row
from arelu_meta.console import catalog
from arelu_meta.errors import RunError

SEEDS = 5
FEW, MANY = 5, 25  # iterations; their difference is free of start-up
REPEATS = 2
QUICK = ("--test-episodes", "32", "--validation-episodes", "32", "--validate-every", "1000")


def bench_commands(root: str | None = None) -> Iterator[BenchReport]:
    """Compare commands on the bundled digits."""
    del root  # bundled images only
    yield _startup()
    yield _seeds()
    yield _ranks()
    yield _tracking()


def _seeds() -> BenchReport:
    train = ("-m", "arelu_meta.classify", "--task", "digits_classify", "--epochs", "5")
    one = [(*train, "--seeds", f"0-{SEEDS - 1}")]
    several = [(*train, "--seed", str(seed)) for seed in range(SEEDS)]
    pairs = [(_seconds(one), _seconds(several)) for _ in range(REPEATS)]
    together, apart = (min(side) for side in zip(*pairs, strict=True))
    rows = [Row("one command", together, 1.0), Row(f"{SEEDS} commands", apart, apart / together)]
    return BenchReport(f"{SEEDS} seeds of digits_classify, 5 epochs, set-up included", rows)


def _ranks() -> BenchReport:
    two = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    pairs = [(_per_iteration(two), _per_iteration(("-m",))) for _ in range(REPEATS)]
    ours, one = (min(side) for side in zip(*pairs, strict=True))
    rows = [Row("2 ranks", ours, 1.0), Row("1 process", one, one / ours)]
    return BenchReport("outer step of make maml's task, one thread per process, start-up taken off", rows)


def _per_iteration(launcher: Sequence[str]) -> float:
    def whole(iterations: int) -> float:
        return _seconds([(*launcher, "arelu_meta.maml", "--iterations", str(iterations), *QUICK)])

    return (whole(MANY) - whole(FEW)) / (MANY - FEW)


def _startup() -> BenchReport:
    used = min(_cpu_seconds("-m", "arelu_meta.maml", "--help") for _ in range(REPEATS))
    bare = min(_cpu_seconds("-c", "pass") for _ in range(REPEATS))
    rows = [Row("arelu_meta.maml --help", used, 1.0, "CPU time"), Row("python alone", bare, bare / used, "CPU time")]
    return BenchReport("start-up", rows)


def _tracking() -> BenchReport:
    """Time inside the tracker, of all the time a run takes."""
    from arelu_meta.benchmarks.clock import Clock
    from arelu_meta.console.flags import validated
    from arelu_meta.kinds.execution import Execution
    from arelu_meta.kinds.few_shot.spec import FewShotSpec
    from arelu_meta.kinds.run import run
    from arelu_meta.store.tracking import Tracker

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, _at(Path(folder)), clock.watching(Tracker, _public(Tracker)):
        start = time.perf_counter()
        run(validated(FewShotSpec, catalog.read("task", "digits"), "digits"), Execution(experiment="bench"))
        whole = time.perf_counter() - start
    rest = whole - clock.seconds
    rows = [
        Row("run without it", rest, 1.0),
        Row("tracking", clock.seconds, clock.seconds / rest, f"{clock.calls} calls"),
    ]
    return BenchReport("tracking in MLflow, the run of make maml", rows, of="without")


def _public(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")]


def _seconds(commands: Sequence[Sequence[str]]) -> float:
    """Run commands one after the other in an empty folder with a store of their own."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        for command in commands:
            _run(command, Path(folder))
        return time.perf_counter() - start


def _cpu_seconds(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        _run(command, Path(folder))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def _run(command: Sequence[str], folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    done = subprocess.run(  # noqa: S603  (our own commands)
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RunError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-300:]}")


@contextmanager
def _at(folder: Path) -> Iterator[None]:
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
