"""Cells on this machine: worker processes that stay alive over cells, each with its share of the cores.

A worker imports torch once. It ignores Ctrl-C, which is the runner's to handle, and ends with the runner, also when
that is killed.
"""

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait

from arelu_meta.comparison.environment import environment, of_threads
from arelu_meta.comparison.job import PATIENCE, Job, Listener, Outcome, Tries
from arelu_meta.console import progress
from arelu_meta.console.command_line import terminate
from arelu_meta.runtime.hardware import usable_cores

EVERY = 0.5  # seconds between two messages of a worker about its progress


class Worker:
    """One process and the pipe to it."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other,), daemon=True)
        with environment(of_threads(threads)), _without_interrupts():
            self.process.start()
        other.close()  # so that the death of the process ends the pipe
        self.job: Job | None = None

    def take(self, job: Job, listener: Listener) -> None:
        """Send it a job; a worker that died meanwhile shows when its answer is awaited."""
        self.job = job
        listener.begun(job.cell)
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(job)

    def answer(self, listener: Listener) -> Outcome | None:
        """Read what it says: the outcome of its job, or None while it is still at it."""
        job = self.job
        if job is None:
            return None
        try:
            kind, *content = self.connection.recv()
        except (EOFError, OSError):  # also in the middle of a message
            kind, content = "outcome", [Outcome(job.cell, reason="its worker died", died=True)]
        if kind == "advanced":
            listener.advanced(job.cell, *content)
        elif kind == "noted":
            listener.noted(*content)
        if kind != "outcome":
            return None
        self.job = None
        outcome: Outcome = content[0]
        return outcome

    def dismiss(self) -> None:
        """Let it end: at once when it is idle and has no run open; with its run closed as KILLED when it has."""
        if self.job is None:
            self.process.kill()
        else:
            self.process.terminate()


class Pool:
    """Worker processes: as many as wanted, never more than there are jobs."""

    def __init__(self, workers: int, threads: int) -> None:
        self._number, self._threads = workers, threads
        self._workers: list[Worker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_error: object) -> None:
        for worker in self._workers:
            worker.dismiss()
        end = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.process.join(max(0.1, end - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.connection.close()

    def run(self, jobs: Sequence[Job], listener: Listener) -> Iterator[Outcome]:
        """Run all jobs and give their outcomes as they end; a failed or orphaned one is tried again."""
        waiting, tries = deque(jobs), Tries()
        for _ in range(min(self._number, len(jobs))):
            self._workers.append(Worker(self._threads))
        while waiting or any(worker.job for worker in self._workers):
            for worker in self._workers:
                if worker.job is None and waiting:
                    worker.take(waiting.popleft(), listener)
            busy = [worker for worker in self._workers if worker.job]
            ready = set(wait([worker.connection for worker in busy]))
            for worker in busy:
                if worker.connection not in ready or worker.job is None:
                    continue
                job, outcome = worker.job, worker.answer(listener)
                if outcome is None:
                    continue
                if outcome.died:
                    self._replace(worker)
                if outcome.finished or not tries.again_after(outcome):
                    listener.ended(outcome)
                    yield outcome
                else:
                    listener.noted(f"{job.cell.label}: {outcome.reason}; it is tried again")
                    waiting.append(job)

    def _replace(self, worker: Worker) -> None:
        worker.process.join()
        worker.connection.close()
        self._workers[self._workers.index(worker)] = Worker(self._threads)


def share_of_cores(workers: int) -> int:
    """Threads for each of so many workers, so that they do not fight for cores."""
    return max(1, usable_cores() // workers)


def _work(connection: Connection) -> None:
    """Do jobs as they come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, terminate)
    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    try:
        from arelu_meta.comparison.cell_run import run_cell

        warnings.showwarning = lambda message, *_where, **_line: connection.send(("noted", f"warning: {message}"))
        while True:
            job: Job = connection.recv()
            connection.send(("outcome", run_cell(job, _telling(connection))))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        return


def _end_with_the_runner() -> None:
    """A runner that is killed cannot say so; going on without it would meet the next one at the same cell."""
    runner = multiprocessing.parent_process()
    if runner is not None:
        runner.join()
        os._exit(1)


def _telling(connection: Connection) -> progress.Bar:
    """Make a bar that tells the runner how far the cell is, now and then."""

    @contextmanager
    def bar(description: str, total: int) -> Iterator[progress.Advance]:
        done, told = 0, 0.0

        def advance(_note: str) -> None:
            nonlocal done, told
            done += 1
            if time.monotonic() - told > EVERY:
                told = time.monotonic()
                connection.send(("advanced", description, done, total))

        connection.send(("advanced", description, 0, total))
        yield advance

    return bar


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Have a process that is started meanwhile ignore Ctrl-C from its first moment."""
    if threading.current_thread() is not threading.main_thread():  # the only one that may set handlers
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
