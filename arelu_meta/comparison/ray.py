"""Cells on a Ray cluster: one remote function call per cell, with the CPUs and (parts of) GPUs it needs.

Ray repeats a call elsewhere when its worker or node dies; a cell that fails is sent once more from here. Ray is an
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
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arelu_meta.comparison.worker import (
    CLOSING_SECONDS,
    MOST_DEATHS,
    CellOutcome,
    Job,
    Retries,
    check_workers,
    environment,
    run_cell,
    thread_variables,
)
from arelu_meta.errors import InputError, first_line
from arelu_meta.runtime.signals import Terminated, terminate

if TYPE_CHECKING:
    from arelu_meta.comparison.overview import Overview

_SQLITE = "sqlite:///"
_PASSED_ON = ("ARELU_META_DATA", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_CANCEL_SECONDS = 5.0  # until a cancellation is repeated: one that meets Python inside a destructor is lost there
_OBJECT_STORE_BYTES = 100 * 2**20  # outcomes are small, and Ray would take a third of the memory
_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a research tool sends nothing home
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a warning about GPUs we do not ask for
}


class RayCluster:
    """The cluster of RAY_ADDRESS, or one of this machine alone.

    Args:
        workers: cells at once, where the cluster is of this machine alone.
        threads: CPU threads of each cell; 0: as many as its CPUs.
        cpus: CPUs of a cell.
        gpus: GPUs of a cell; parts are allowed.

    Raises:
        InputError: Ray is not installed, or a number is out of range.
    """

    def __init__(self, *, workers: int = 1, threads: int = 0, cpus: float = 1.0, gpus: float = 0.0) -> None:
        check_workers(workers, threads)
        if cpus <= 0 or gpus < 0:
            raise InputError(f"`cpus` {cpus:g} must be above 0, and `gpus` {gpus:g} at least 0")
        if importlib.util.find_spec("ray") is None:
            raise InputError("Ray is not installed; pip install 'arelu-meta[ray]'")
        self.count, self._threads, self._cpus, self._gpus = workers, threads or max(1, int(cpus)), cpus, gpus
        self._ray: Any = None

    def __enter__(self) -> "RayCluster":
        for name, value in _RAY_SETTINGS.items():
            os.environ.setdefault(name, value)
        import ray

        self._ray, handler = ray, signal.getsignal(signal.SIGTERM)
        try:
            self._connect(os.environ.get("RAY_ADDRESS"))
        finally:
            # Ray replaces the handler of SIGTERM by one that ends the process with its runs open.
            if threading.current_thread() is threading.main_thread():  # the only one that may set handlers
                signal.signal(signal.SIGTERM, handler)
        try:
            self._check_resources()
        except InputError:
            ray.shutdown()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._ray.shutdown()

    def run(self, jobs: Sequence[Job], overview: "Overview") -> Generator[CellOutcome, None, None]:
        """Run all jobs and give their outcomes as they end, telling `overview`."""
        remote = self._ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=MOST_DEATHS - 1)(_run_remotely)
        waiting, retries = list(jobs), Retries()
        if not self._gpus:  # cells that ask for no GPU see all of them
            waiting = [job.on_device("cpu") if job.execution.device == "auto" else job for job in jobs]
        calls: dict[Future[CellOutcome], tuple[Job, Any]] = {}
        try:
            while waiting or calls:
                while waiting:
                    job = waiting.pop(0)
                    reference = remote.remote(job)
                    calls[reference.future()] = (job, reference)
                ready = next(iter(wait(calls, return_when=FIRST_COMPLETED).done))
                job, _ = calls.pop(ready)
                try:
                    outcome = ready.result()
                except Exception as error:  # of many kinds: a node that died, too little memory, a lost connection
                    reason = f"{type(error).__name__}: {first_line(error)}"
                    outcome = CellOutcome(job.cell, reason=reason, died=True)
                if outcome.has_result or outcome.died or not retries.allow(outcome):
                    overview.on_end(outcome)
                    yield outcome
                else:
                    overview.on_message(f"{job.cell.label}: {outcome.reason}; it is retried")
                    waiting.append(job)
        finally:
            self._cancel([*calls.values()])

    def _connect(self, address: str | None) -> None:
        """Join the cluster at an address, or start one of this machine; cells get their environment from here."""
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None or not address:
            # The cluster inherits the environment, so that its first workers can be used.
            with environment(self._environment()):
                self._ray.init(
                    address="local",  # else it would join a cluster that someone started here
                    num_cpus=max(1, round(self.count * self._cpus)),
                    object_store_memory=_OBJECT_STORE_BYTES,
                    include_dashboard=False,
                    **quiet,
                )
            return
        try:
            # Others may use the cluster too: the environment goes with these calls alone.
            with _standard_error_discarded():
                self._ray.init(address=address, runtime_env={"env_vars": self._environment()}, **quiet)
        except (ConnectionError, self._ray.exceptions.RayError) as error:
            raise InputError(
                f"no Ray cluster at RAY_ADDRESS {address}: {first_line(error)}; start it, unset RAY_ADDRESS, or, "
                "where it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
            ) from error

    def _cancel(self, calls: Sequence[tuple[Job, Any]]) -> None:
        """Cancel what still runs when the runner is interrupted, and wait until the runs are closed as KILLED.

        Ray itself does not wait. Cancelling is repeated until the store has no open run of these cells.
        """
        from arelu_meta.store.connection import open_store

        cancelled, end = -math.inf, time.monotonic() + CLOSING_SECONDS
        identities = {job.cell.identity for job, _ in calls}
        while calls and time.monotonic() < end:
            if time.monotonic() - cancelled > _CANCEL_SECONDS:
                cancelled = time.monotonic()
                for _, reference in calls:
                    self._ray.cancel(reference)
            time.sleep(0.2)
            client, experiment_id = open_store(calls[0][0].execution.experiment)
            open_runs = client.search_runs([experiment_id], "attributes.status = 'RUNNING'")
            if not any(run.data.tags.get("spec_hash") in identities for run in open_runs):
                return

    def _environment(self) -> dict[str, str]:
        """What a cell's process gets: its threads before torch starts, and one store for all."""
        from arelu_meta.store.sources import store_uri

        uri = store_uri()
        if uri.startswith(_SQLITE):
            uri = f"{_SQLITE}{Path(uri.removeprefix(_SQLITE)).resolve()}"
        runs = str(Path(os.environ.get("ARELU_META_RUNS") or "runs").resolve())
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {**thread_variables(self._threads), **passed_on, "MLFLOW_TRACKING_URI": uri, "ARELU_META_RUNS": runs}

    def _check_resources(self) -> None:
        """Refuse what would wait for ever or scatter the results."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        for name, wanted in (("CPU", self._cpus), ("GPU", self._gpus)):
            most = max((node["Resources"].get(name, 0.0) for node in nodes), default=0.0)
            if wanted > most:
                raise InputError(
                    f"a cell asks for {wanted:g} {name}s, but no node of the cluster has more than {most:g}; "
                    f"lower `{name.lower()}s`"
                )
        store = self._environment()["MLFLOW_TRACKING_URI"]
        if len({node["NodeManagerAddress"] for node in nodes}) > 1 and store.startswith(_SQLITE):
            raise InputError(
                f"the cluster has several machines, but the store {store} is a file of this one; set "
                f"MLFLOW_TRACKING_URI to an MLflow server"
            )


@contextmanager
def _standard_error_discarded() -> Iterator[None]:
    """Discard what Ray's native part writes to file descriptor 2 while it cannot connect: lines for three minutes.

    No setting stops it (RAY_BACKEND_LOG_LEVEL=fatal does not, in 2.60); the error that follows says it in one line.
    """
    before = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _run_remotely(job: Job) -> CellOutcome:
    """Run a cell in a process of Ray's."""
    handler = signal.signal(signal.SIGTERM, terminate)  # so that the run is closed; Ray's own would leave it FAILED
    try:
        return run_cell(replace(job, folder=None))  # made by the runner on its own machine
    except Terminated:
        sys.exit(1)  # as Ray's own handler does: the worker is gone, and the call is repeated elsewhere
    finally:
        signal.signal(signal.SIGTERM, handler)
