import os
import signal
import subprocess
import sys

from arelu_meta.comparison.environment import environment, of_threads
from arelu_meta.comparison.pool import _without_interrupts, share_of_cores

TELL = "import os, signal; print(os.environ['OMP_NUM_THREADS'], signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"


def test_what_a_worker_inherits(monkeypatch):
    """Its threads before it loads torch, and no Ctrl-C; the runner itself is as it was."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before, handler = dict(os.environ), signal.getsignal(signal.SIGINT)
    with environment(of_threads(7)), _without_interrupts():
        assert os.environ["MKL_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "7"
        child = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    assert child.stdout == "7 True\n"
    assert dict(os.environ) == before
    assert signal.getsignal(signal.SIGINT) is handler


def test_cores_are_shared_out(monkeypatch):
    """Eight cores: three workers have two each; nobody has none."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    assert [share_of_cores(workers) for workers in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
