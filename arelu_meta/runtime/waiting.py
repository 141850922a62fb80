"""How the threads of OpenMP wait for each other. Importing it imports no torch.

The wheels of torch for Linux bring libgomp. At the end of every parallel region its threads spin for some milliseconds
before they sleep. On a machine that has other work to do, the thread that is waited for is not running meanwhile: a
step can take ten times its share of the machine, or a hundred times. On an idle machine spinning is right: there,
threads that sleep make a step up to twice as long, or more, where waking them is slow.
"""

import os
import sys
import time
from pathlib import Path

from arelu_meta.runtime.hardware import usable_cores

SPIN_COUNT = "1000"  # some ten microseconds; by default 300,000
WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")  # of GNU, Intel and LLVM
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def bound_spinning() -> bool:
    """Let threads of OpenMP sleep after a short spin where others keep cores busy, unless the user has chosen.

    The variable is read when the library is loaded, and inherited by processes that are started later.

    Returns:
        Whether it was set: not where torch is loaded already, or as many cores are free as this process may use.
    """
    if "torch" in sys.modules or any(os.environ.get(name) for name in WAITING_VARIABLES):
        return False
    if others_at_work() <= (os.cpu_count() or 1) - usable_cores():
        return False
    os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
    return True


def others_at_work(samples: int = 8, pause: float = 0.01) -> int:
    """Count the processes besides this one that want a core now: the least of some samples; 0 where nothing tells."""
    least = sys.maxsize
    for _ in range(samples):
        try:
            running = Path("/proc/loadavg").read_text().split()[3]  # "2/345": running and all, this one among them
        except (OSError, IndexError):
            return 0
        least = min(least, int(running.partition("/")[0]) - 1)
        if least <= 0:
            return 0
        time.sleep(pause)
    return least


def waiting_policy() -> str:
    """Name the variables that say how threads of OpenMP wait, as a run is tagged with them."""
    chosen = [f"{name}={os.environ[name]}" for name in WAITING_VARIABLES if os.environ.get(name)]
    return " ".join(chosen) or "default"


def threads_are_given(threads: int) -> bool:
    """Tell whether a number of threads was asked for, by `threads` (0: no) or in the environment."""
    return bool(threads) or any(os.environ.get(name) for name in THREAD_VARIABLES)
