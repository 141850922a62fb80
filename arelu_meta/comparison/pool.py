"""Cells on this machine: worker processes that stay alive over cells, each with its share of the cores.

A worker imports torch once. It ignores Ctrl-C and a closed terminal, which are the runner's to handle, and ends with
the runner, also when that is killed.
"""

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from arelu_meta.comparison.worker import (
    CLOSING_SECONDS,
    CellOutcome,
    Job,
    Retries,
    check_workers,
    environment,
    run_cell,
    thread_variables,
)
from arelu_meta.console import progress
from arelu_meta.runtime.hardware import device_of_worker, usable_cores
from arelu_meta.runtime.signals import ENDING, terminate

if TYPE_CHECKING:
    from arelu_meta.comparison.overview import Overview

PROGRESS_SECONDS = 0.5  # between two messages of a worker about its progress


class Pool:
    """Worker processes on this machine; never more than there are cells.

    Args:
        workers: cells at once.
        threads: CPU threads of each; 0 shares the cores out.

    Raises:
        InputError: a number is out of range.
    """

    def __init__(self, workers: int = 1, threads: int = 0) -> None:
        check_workers(workers, threads)
        self.count, self._threads = workers, threads or max(1, usable_cores() // workers)
        self._workers: list[_Worker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_error: object) -> None:
        for worker in self._workers:
            if worker.job is None:
                worker.process.kill()
            else:
                worker.process.terminate()  # it closes its run as KILLED
        end = time.monotonic() + CLOSING_SECONDS
        for worker in self._workers:
            worker.process.join(max(0.1, end - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.connection.close()
        self._workers.clear()

    def run(self, jobs: Sequence[Job], overview: "Overview") -> Generator[CellOutcome, None, None]:
        """Run all jobs, tell `overview`, give outcomes as they end; failed ones, and those of dead workers, again."""
        waiting, retries = deque(jobs), Retries()
        for _ in range(min(self.count, len(jobs))):
            self._workers.append(_Worker(len(self._workers), self._threads))
        while waiting or any(worker.job for worker in self._workers):
            for worker in self._workers:
                if worker.job is None and waiting:
                    worker.job = waiting.popleft()
                    overview.on_start(worker.job.cell)
                    with suppress(BrokenPipeError, ConnectionResetError):  # its death shows when its answer is awaited
                        worker.connection.send(worker.job)
            busy = {worker.connection: worker for worker in self._workers if worker.job}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]  # `wait` gives back what it was given
                job, outcome = worker.job, worker.receive(overview)
                if job is None or outcome is None:
                    continue
                if outcome.died:
                    worker.process.join()
                    worker.connection.close()
                    self._workers[worker.number] = _Worker(worker.number, self._threads)
                if outcome.has_result or not retries.allow(outcome):
                    overview.on_end(outcome)
                    yield outcome
                else:
                    overview.on_message(f"{job.cell.label}: {outcome.reason}; it is retried")
                    waiting.append(job)


class _Worker:
    """One process and the pipe to it; its number, from 0, decides which GPU it has where there are several."""

    def __init__(self, number: int, threads: int) -> None:
        self.number = number
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, number), daemon=True)
        with environment(thread_variables(threads)), _interrupts_ignored():
            self.process.start()
        other.close()  # so that the death of the process ends the pipe
        self.job: Job | None = None

    def receive(self, overview: "Overview") -> CellOutcome | None:
        """Read a message: the outcome of its job, or None where it was about progress."""
        if self.job is None:
            return None
        try:
            kind, *content = self.connection.recv()
        except (EOFError, OSError):  # also in the middle of a message
            kind, content = "outcome", [CellOutcome(self.job.cell, reason="its worker died", died=True)]
        if kind == "progress":
            overview.on_progress(self.job.cell, *content)
        elif kind == "message":
            overview.on_message(*content)
        if kind != "outcome":
            return None
        self.job = None
        outcome: CellOutcome = content[0]
        return outcome


class Sender:
    """Sends messages through a pipe from any thread: `Connection.send` writes a long one in several parts."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.RLock()

    def __call__(self, *message: Any) -> None:
        """Send a message whole."""
        with self._lock:
            self._connection.send(message)


def _work(connection: Connection, number: int) -> None:
    """Run jobs as they come; this is a worker's process."""
    for ending in (signal.SIGINT, *ENDING):
        signal.signal(ending, terminate if ending == signal.SIGTERM else signal.SIG_IGN)
    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    send = Sender(connection)
    warnings.showwarning = lambda message, *_where, **_line: send("message", f"warning: {message}")
    try:
        while True:
            job: Job = connection.recv()
            send("outcome", run_cell(job.on_device(device_of_worker(job.execution.device, number)), _sending_bar(send)))
    except KeyboardInterrupt:  # its run is closed: the runner need not wait for torch to be taken down
        os._exit(0)
    except (EOFError, BrokenPipeError):
        return


def _end_with_the_runner() -> None:
    """End this process when the runner's ends, which may have been killed without a word to its workers."""
    runner = multiprocessing.parent_process()
    if runner is not None:
        runner.join()
        os._exit(1)


def _sending_bar(send: Sender) -> progress.Bar:
    """Make a progress bar that sends the runner how far the cell is, at most twice a second."""

    @contextmanager
    def bar(description: str, total: int) -> Iterator[progress.Advance]:
        done, last = 0, 0.0

        def advance(_note: str) -> None:
            nonlocal done, last
            done += 1
            if time.monotonic() - last > PROGRESS_SECONDS:
                last = time.monotonic()
                send("progress", description, done, total)

        send("progress", description, 0, total)
        yield advance

    return bar


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Have a process that is started meanwhile ignore Ctrl-C from its first moment."""
    if threading.current_thread() is not threading.main_thread():  # the only one that may set handlers
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
