"""How the threads of OpenMP wait for each other, and how many cores are free for them. Importing it imports no torch.

The wheels of torch for Linux bring libgomp. At the end of every parallel region its threads spin for some milliseconds
before they sleep. On a machine that has other work to do, the thread that is waited for is not running meanwhile: a
step can take ten times its share of the machine, or a hundred times.
"""

import os
import sys
import time
from pathlib import Path

SPIN_COUNT = "1000"  # some ten microseconds; by default 300,000
WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")  # of GNU, Intel and LLVM
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
MOST_BUSY = 0.25  # share of the cores that others may use before we take fewer threads
STAT = Path("/proc/stat")
_TICKS = 100.0  # of the kernel's clock in a second, in all that it shows


def bound_spinning() -> bool:
    """Let threads of OpenMP sleep after a short spin, unless the user has chosen how they wait.

    The variable is read when the library is loaded, and inherited by processes that are started later.

    Returns:
        Whether it was set: not where torch is loaded already.
    """
    if "torch" in sys.modules or any(os.environ.get(name) for name in WAITING_VARIABLES):
        return False
    os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
    return True


def waiting_policy() -> str:
    """Name the variables that say how threads of OpenMP wait, as a run is tagged with them."""
    chosen = [f"{name}={os.environ[name]}" for name in WAITING_VARIABLES if os.environ.get(name)]
    return " ".join(chosen) or "default"


def threads_are_given(threads: int) -> bool:
    """Tell whether a number of threads was asked for, by `threads` (0: no) or in the environment."""
    return bool(threads) or any(os.environ.get(name) for name in THREAD_VARIABLES)


class CoreWatch:
    """Watches from its beginning on how much of the cores other processes use.

    What the kernel counts since then is taken, not the load average: that of the last minute would still hold the
    command before this one.
    """

    def __init__(self) -> None:
        self._start, self._idle = time.monotonic(), _idle_seconds()
        self._own = time.process_time()

    def free_cores(self) -> float | None:
        """Count the cores that were idle or ours; None where the system does not say, or it is too early to tell."""
        idle, seconds = _idle_seconds(), time.monotonic() - self._start
        if idle is None or self._idle is None or seconds < 10 / _TICKS:
            return None
        return (idle - self._idle + time.process_time() - self._own) / seconds

    def threads(self, most: int) -> int:
        """Give as many threads as there are cores, and fewer where others use more than a quarter of these.

        Args:
            most: threads on an idle machine
        """
        free = self.free_cores()
        if free is None or free >= (1 - MOST_BUSY) * most:
            return most
        return max(1, round(free))


def _idle_seconds() -> float | None:
    """Time that the cores of this process have idled since the machine started, together; None if not known."""
    if not STAT.exists() or not hasattr(os, "sched_getaffinity"):
        return None
    wanted, ticks = {f"cpu{number}" for number in os.sched_getaffinity(0)}, 0
    for line in STAT.read_text(encoding="utf-8").splitlines():
        name, *counts = line.split()
        if name in wanted:
            ticks += int(counts[3]) + int(counts[4])  # idle, and idle but for a disk
    return ticks / _TICKS
