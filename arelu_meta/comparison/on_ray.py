"""Cells on a Ray cluster: one remote task per cell, with the CPUs and (parts of) GPUs it needs.

Ray starts a task again elsewhere when its worker or node dies; a task that fails is sent once more from here. Ray is an
extra: `pip install 'arelu-meta[ray]'`.
"""

import importlib.util
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arelu_meta.comparison.environment import environment, of_threads
from arelu_meta.comparison.job import LIVES, PATIENCE, Job, Listener, Outcome, Tries
from arelu_meta.console.command_line import Terminated, terminate
from arelu_meta.errors import InputError, first_line

SQLITE = "sqlite:///"
HANDED_ON = ("ARELU_META_DATA", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
ASK_AGAIN = 5.0  # seconds; an interruption that meets Python inside a destructor, for one, is dropped there
OBJECT_STORE = 100 * 2**20  # bytes; outcomes are small, and Ray would take a third of the memory
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a research tool sends nothing home
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a warning about GPUs we do not ask for
}


def check_ray() -> None:
    """Refuse early where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("--on ray needs Ray, which is not installed; pip install 'arelu-meta[ray]'")


@dataclass(frozen=True)
class Task:
    """A job that Ray has, and what it will answer."""

    job: Job
    reference: Any
    answer: Future[Outcome]

    def outcome(self) -> Outcome:
        """What came of it; also when it was not run to its end."""
        try:
            return self.answer.result()
        except Exception as error:  # of many kinds: a node that died, too little memory, a lost connection
            reason = f"{type(error).__name__}: {first_line(error)}"
            return Outcome(self.job.cell, reason=reason, died=True)


class RayCluster:
    """The cluster of RAY_ADDRESS, or one of this machine alone."""

    def __init__(self, *, workers: int, threads: int, cpus: float = 1.0, gpus: float = 0.0) -> None:
        check_ray()
        self._workers, self._threads, self._cpus, self._gpus = workers, threads, cpus, gpus
        self._ray: Any = None

    def __enter__(self) -> "RayCluster":
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        import ray

        self._ray = ray
        address = os.environ.get("RAY_ADDRESS")
        with _our_own_handler():
            if address:
                self._join(address)
            else:
                self._start()
        self._check()
        return self

    def _join(self, address: str) -> None:
        """Connect to a cluster that others may use too: what cells are told goes with this job alone."""
        try:
            with _without_standard_error():
                self._ray.init(
                    address=address,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    runtime_env={"env_vars": self._environment()},
                )
        except (ConnectionError, self._ray.exceptions.RayError) as error:
            raise InputError(
                f"no Ray cluster at RAY_ADDRESS {address}: {first_line(error)}; start it, unset RAY_ADDRESS, "
                "or, where it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
            ) from error

    def _start(self) -> None:
        """Start a cluster of this machine; what cells are told it inherits, so its first workers can be used."""
        with environment(self._environment()):
            self._ray.init(
                address="local",  # else it would join a cluster that someone started here
                num_cpus=max(1, round(self._workers * self._cpus)),
                object_store_memory=OBJECT_STORE,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )

    def __exit__(self, *_error: object) -> None:
        self._ray.shutdown()

    def run(self, jobs: Sequence[Job], listener: Listener) -> Iterator[Outcome]:
        """Run all jobs and give their outcomes as they end."""
        tries, tasks = Tries(), [self._task(job) for job in jobs]
        try:
            while tasks:
                ready = next(iter(wait((task.answer for task in tasks), return_when=FIRST_COMPLETED).done))
                task = next(task for task in tasks if task.answer is ready)
                tasks.remove(task)
                job, outcome = task.job, task.outcome()
                if outcome.finished or outcome.died or not tries.again_after(outcome):
                    listener.ended(outcome)
                    yield outcome
                else:
                    listener.noted(f"{job.cell.label}: {outcome.reason}; it is tried again")
                    tasks.append(self._task(job))
        finally:
            self._cancel(tasks)

    def _task(self, job: Job) -> Task:
        remote = self._ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=LIVES - 1)(_run)
        reference = remote.remote(job)
        return Task(job, reference, reference.future())

    def _cancel(self, tasks: list[Task]) -> None:
        """Have what still runs when the runner is interrupted close its runs as KILLED; Ray itself does not wait."""
        asked, end = -math.inf, time.monotonic() + PATIENCE
        while tasks and time.monotonic() < end:
            if time.monotonic() - asked > ASK_AGAIN:
                asked = time.monotonic()
                for task in tasks:
                    self._ray.cancel(task.reference)
            time.sleep(0.2)
            if not _any_at_work(tasks[0].job):
                return

    def _environment(self) -> dict[str, str]:
        """What a cell's process is told: threads before torch starts, and the one store for all."""
        from arelu_meta.store.connection import store_uri

        uri = store_uri()
        if uri.startswith(SQLITE):
            uri = f"{SQLITE}{Path(uri.removeprefix(SQLITE)).resolve()}"
        runs = str(Path(os.environ.get("ARELU_META_RUNS") or "runs").resolve())
        handed_on = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        return {**of_threads(self._threads), **handed_on, "MLFLOW_TRACKING_URI": uri, "ARELU_META_RUNS": runs}

    def _check(self) -> None:
        """Refuse what would wait for ever or scatter the results."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        for name, wanted in (("CPU", self._cpus), ("GPU", self._gpus)):
            most = max((node["Resources"].get(name, 0.0) for node in nodes), default=0.0)
            if wanted > most:
                self._ray.shutdown()
                raise InputError(
                    f"a cell asks for {wanted:g} {name}s, but no node of the cluster has more than {most:g}; "
                    f"lower --{name.lower()}s"
                )
        store = self._environment()["MLFLOW_TRACKING_URI"]
        if len({node["NodeManagerAddress"] for node in nodes}) > 1 and store.startswith(SQLITE):
            self._ray.shutdown()
            raise InputError(
                f"the cluster has several machines, but the store {store} is a file of this one; set "
                f"MLFLOW_TRACKING_URI to an MLflow server"
            )


def _any_at_work(job: Job) -> bool:
    """Tell whether any worker still has a cell of this job's runner; its claim lasts until its run is closed."""
    from arelu_meta.comparison.claim import Claims
    from arelu_meta.store.connection import open_store

    return Claims(*open_store(job.execution.experiment)).any_of(job.runner)


@contextmanager
def _our_own_handler() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray replaces by one that ends the process without a word to its runs."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # the only one that may set handlers
            signal.signal(signal.SIGTERM, handler)


@contextmanager
def _without_standard_error() -> Iterator[None]:
    """Keep back what Ray's native part says while it tries to connect: the same line once a second."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _run(job: Job) -> Outcome:
    from arelu_meta.comparison.cell_run import run_cell

    handler = signal.signal(signal.SIGTERM, terminate)  # so that the run is closed; Ray's own would leave it FAILED
    try:
        return run_cell(job)
    except Terminated:
        sys.exit(1)  # as Ray's own: a worker that went, whose task is run elsewhere
    finally:
        signal.signal(signal.SIGTERM, handler)
