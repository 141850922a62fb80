import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest

from arelu_meta.comparison import pool
from arelu_meta.comparison.pool import Pool, Sender, _interrupts_ignored
from arelu_meta.comparison.worker import Job
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import Execution

IGNORES = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"


def test_a_worker_ignores_interrupts_from_its_first_moment():
    """The runner itself is as it was."""
    handler = signal.getsignal(signal.SIGINT)
    with _interrupts_ignored():
        child = subprocess.run([sys.executable, "-c", IGNORES], capture_output=True, text=True, check=True)
    assert child.stdout == "True\n"
    assert signal.getsignal(signal.SIGINT) is handler


def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch):
    """Eight cores: three workers have two each; nobody has none."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    assert [Pool(workers)._threads for workers in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    assert Pool(2, 3)._threads == 3


def test_cores_are_shared_out_on_macos(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert Pool(2)._threads == 4


def test_a_worker_runs_its_cells_on_its_own_gpu(monkeypatch: pytest.MonkeyPatch):
    """The second of two workers, on a machine with two GPUs; the first message is the job, then the runner is gone."""
    job, ran = Job(cell=None, execution=Execution(device="auto", threads=3)), list[Execution]()
    messages = iter([job])

    class Connection:
        def recv(self) -> Job:
            try:
                return next(messages)
            except StopIteration:
                raise EOFError from None

        def send(self, message: object) -> None:
            assert message == ("outcome", "done")

    monkeypatch.setattr(pool, "run_cell", lambda job, _bar: ran.append(job.execution) or "done")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(signal, "signal", lambda *_handler: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    pool._work(Connection(), 1)
    assert ran == [Execution(device="cuda:1", threads=3)]


@pytest.mark.parametrize(
    ("workers", "threads", "message"),
    [(0, 0, "`workers` 0 must be at least 1"), (1, -1, "`threads` -1 must be"), (1, 9999, "at most 1024")],
)
def test_numbers_out_of_range(workers: int, threads: int, message: str):
    with pytest.raises(InputError, match=message):
        Pool(workers, threads)


def test_messages_of_two_threads_stay_whole():
    """A warning may come from any thread of a worker; the pipe takes a long message in several parts."""
    receiver, other = multiprocessing.Pipe()
    send = Sender(other)

    def speak(letter: str) -> None:
        for _ in range(50):
            send("message", letter * 100_000)

    threads = [threading.Thread(target=speak, args=(letter,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    messages = [receiver.recv() for _ in range(100)]
    for thread in threads:
        thread.join()
    assert sorted(messages) == [("message", letter * 100_000) for letter in "ab" for _ in range(50)]
