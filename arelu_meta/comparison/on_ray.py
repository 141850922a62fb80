"""Cells on a Ray cluster: one remote task per cell, with the CPUs and (parts of) GPUs it needs.

Ray starts a task again elsewhere when its worker or node dies; a task that fails is sent once more from here. Ray is an
extra: `pip install 'arelu-meta[ray]'`.
"""

import importlib.util
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arelu_meta.comparison.environment import environment, of_threads
from arelu_meta.comparison.job import LIVES, Job, Listener, Outcome, Tries
from arelu_meta.errors import InputError

SQLITE = "sqlite:///"
HANDED_ON = ("ARELU_META_DATA", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
OBJECT_STORE = 100 * 2**20  # bytes; outcomes are small, and Ray would take a third of the memory
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}


def check_ray() -> None:
    """Refuse early where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("--on ray needs Ray, which is not installed; pip install 'arelu-meta[ray]'")


class RayCluster:
    """The cluster of RAY_ADDRESS, or one of this machine alone."""

    def __init__(self, *, workers: int, threads: int, cpus: float = 1.0, gpus: float = 0.0) -> None:
        check_ray()
        self._workers, self._threads, self._cpus, self._gpus = workers, threads, cpus, gpus
        self._ray: Any = None

    def __enter__(self) -> "RayCluster":
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its warning is about GPUs we do not ask for
        import ray

        self._ray = ray
        address = os.environ.get("RAY_ADDRESS")
        if address:
            self._join(address)
        else:
            self._start()
        self._check()
        return self

    def _join(self, address: str) -> None:
        """Connect to a cluster that others may use too: what cells are told goes with this job alone."""
        try:
            self._ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": self._environment()},
            )
        except ConnectionError as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"no Ray cluster at RAY_ADDRESS {address}: {reason}; start it or unset it") from error

    def _start(self) -> None:
        """Start a cluster of this machine; what cells are told it inherits, so its first workers can be used."""
        with environment(self._environment() | QUIET):
            self._ray.init(
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
        ray, tries = self._ray, Tries()
        remote = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=LIVES - 1)(_run)
        pending = {remote.remote(job): job for job in jobs}
        while pending:
            (ready, *_), _ = ray.wait(list(pending))
            job = pending.pop(ready)
            try:
                outcome: Outcome = ray.get(ready)
            except ray.exceptions.RayError as error:
                lines = str(error).strip().splitlines()
                outcome = Outcome(job.cell, reason=f"{type(error).__name__}: {lines[0] if lines else ''}", died=True)
            if outcome.finished or outcome.died or not tries.again_after(outcome):
                listener.ended(outcome)
                yield outcome
            else:
                listener.noted(f"{job.cell.label}: {outcome.reason}; it is tried again")
                pending[remote.remote(job)] = job

    def _environment(self) -> dict[str, str]:
        """What a cell's process is told: threads before torch starts, and the one store for all."""
        from arelu_meta.store import store_uri

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


def _run(job: Job) -> Outcome:
    from arelu_meta.comparison.cell_run import run_cell

    return run_cell(job)
