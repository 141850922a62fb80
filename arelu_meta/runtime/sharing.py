"""Work on many images, shared out among threads of this process.

Each thread computes on one core: torch's own threads would wait for each other at every small operation, and threads
that each had threads of their own would be more than there are cores.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch

from arelu_meta.runtime.hardware import usable_cores

T = TypeVar("T")
_pools: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()


def share_out(work: Callable[[T], object], parts: Sequence[T]) -> None:
    """Call a function for each of some parts, in as many threads as torch computes with here.

    Args:
        work: writes its results where no other part does.
        parts: what it is called with; one alone is done by the calling thread.

    Raises:
        Exception: the error of the first part that failed, after all have ended.
    """
    count = min(torch.get_num_threads(), usable_cores(), len(parts))
    if count < 2:
        for part in parts:
            work(part)
        return
    futures = [_pool(count).submit(work, part) for part in parts]
    wait(futures)
    for future in futures:
        future.result()


def _pool(count: int) -> ThreadPoolExecutor:
    """Threads that stay, each with one thread of torch's."""
    with _lock:
        if count not in _pools:
            mine, started = torch.get_num_threads(), threading.Barrier(count + 1)
            pool = ThreadPoolExecutor(count, "shared", _alone)
            for _ in range(count):
                pool.submit(started.wait)
            started.wait()
            torch.set_num_threads(mine)  # also what threads that come later begin with, which `_alone` has changed
            _pools[count] = pool
        return _pools[count]


def _alone() -> None:
    """Let torch compute in this thread alone; it takes the number of a new thread when it is first asked."""
    torch.get_num_threads()
    torch.set_num_threads(1)


def _forget() -> None:
    """Leave the threads to the parent process: a fork has none of them, and a lock may have been held."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
