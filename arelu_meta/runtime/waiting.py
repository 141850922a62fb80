"""How the threads of OpenMP wait for each other. Importing it imports no torch.

The wheels of torch for Linux bring libgomp. At the end of every parallel region its threads spin for some milliseconds
before they sleep. On a machine that has other work to do, the thread that is waited for is not running meanwhile: a
step can take ten times its share of the machine, or a hundred times.
"""

import os
import sys

SPIN_COUNT = "1000"  # some ten microseconds; by default 300,000
WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")  # of GNU, Intel and LLVM
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


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
