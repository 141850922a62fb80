"""Device, threads, cores, memory and allocator of this machine. Importing it imports no torch."""

import ctypes
import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from arelu_meta.errors import InputError

if TYPE_CHECKING:
    import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # of mallopt(3)
LARGEST_ON_HEAP, MOST_MAPPED = 32 * 2**20, 65536  # where glibc's own rule for its thresholds ends, and its default
KEPT = 2**30
IMAGES_SHARE = 0.25  # of the machine's memory: sets are copied when they are divided
_IMAGE_MEMORY: ContextVar[int] = ContextVar("image_memory", default=0)
_keepers, _keepers_lock = 0, threading.Lock()  # blocks of `keep_freed_memory`: the allocator is the whole process's


def resolve_device(name: str) -> "torch.device":
    """Turn `auto`, `cpu`, `cuda`, `cuda:1`, ... into a device that is present (`auto`: a GPU when there is one).

    Of several processes that torchrun started on this machine, each has a GPU of its own.

    Raises:
        InputError: there is no such device, or there are more processes than GPUs.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cpu":
            return torch.device(name)
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if name == "cuda" and local:
        count = torch.cuda.device_count()
        if local >= count:
            raise InputError(
                f"process {local + 1} of this machine has no GPU of its own: there are {count}; "
                f"start {count} processes, or set `device` to cpu"
            )
        name = f"cuda:{local}"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # `meta` has devices, but no numbers
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        present = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        raise InputError(f"device {name!r} is not available here; set `device` to {' or '.join(present)}") from None
    return device


def device_of_worker(name: str, number: int) -> str:
    """Name the device of one of several workers on this machine: GPUs are dealt out where the name is of no single one.

    Args:
        name: what was asked for: `auto`, `cuda`, `cuda:1`, `cpu`, ...
        number: number of the worker, from 0
    """
    if name not in ("auto", "cuda"):
        return name
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"cuda:{number % count}" if count else name


@contextmanager
def numerics(*, tf32: bool = False, cudnn_benchmark: bool = False, deterministic: bool = False) -> Iterator[None]:
    """Set how torch trades digits and repeatability for speed; in the end all is as before.

    Args:
        tf32: let matrix products and convolutions of float32 on a GPU drop the last 13 bits of their inputs.
        cudnn_benchmark: let cuDNN try its algorithms for every new shape, and take the fastest.
        deterministic: take algorithms that give the same bits each time; torch warns where there is none.
    """
    import torch

    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.allow_tf32, torch.get_float32_matmul_precision()
    mode = torch.get_deterministic_debug_mode()
    if tf32:
        torch.set_float32_matmul_precision("high")
        cudnn.allow_tf32 = True
    if cudnn_benchmark:
        cudnn.benchmark = True
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.allow_tf32 = before[:2]
        torch.set_float32_matmul_precision(before[2])
        torch.set_deterministic_debug_mode(mode)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads (0: as many as it has now), and with as many as before afterwards."""
    import torch

    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def usable_cores() -> int:
    """Count the cores this process may use: those of its affinity where the system knows one (not on macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> float:
    """Bytes of physical memory; infinite where the system does not say (Windows)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf


def free_memory(device: "torch.device") -> float:
    """Bytes that are free on a GPU; infinite for devices that share the host's memory, or do not say."""
    import torch

    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf


@contextmanager
def bounding_images(mebibytes: int) -> Iterator[None]:
    """Let the images of a set take so many MiB of memory; 0: a quarter of the machine's."""
    token = _IMAGE_MEMORY.set(mebibytes)
    try:
        yield
    finally:
        _IMAGE_MEMORY.reset(token)


def image_memory() -> float:
    """Bytes that the images of one set may take; larger sets are kept on disk, see `data.files.image_cache`."""
    given = _IMAGE_MEMORY.get()
    return given * 2**20 if given else IMAGES_SHARE * available_memory()


def peak_memory() -> int:
    """Most bytes that this process has held; 0 where the system does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # macOS counts bytes, others kibibytes


def processor_time_of_children() -> float:
    """Seconds of processor time of the processes that this one started and that have ended; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return os.times().children_user + os.times().children_system
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # to the microsecond, while os.times() has hundredths
    return used.ru_utime + used.ru_stime


@contextmanager
def keep_freed_memory() -> Iterator[bool]:
    """Keep freed memory for the next tensor instead of returning it to the system; gives whether that is possible.

    By default every tensor of some size is mapped anew, zeroed page by page and unmapped again: a MAML step of 32
    episodes on `mnist_conv` had 29,000 page faults, and has two or three with this. A threshold would not do: glibc
    takes none above 32 MiB, and one feature map of 16 episodes on `conv4` has 80. glibc does not tell its settings, so
    at the end they are what its own dynamic rule gives a process that has freed a large tensor, and what was kept is
    returned: at the end of the last block, where blocks are inside each other or in several threads.
    """
    global _keepers
    try:
        libc = ctypes.CDLL(None)
        mallopt, malloc_trim = libc.mallopt, libc.malloc_trim
    except (AttributeError, OSError, TypeError):  # not glibc
        yield False
        return
    with _keepers_lock:
        _keepers += 1
        kept = bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
    try:
        yield kept
    finally:
        with _keepers_lock:
            _keepers -= 1
            if not _keepers:
                mallopt(_MMAP_MAX, MOST_MAPPED)
                mallopt(_MMAP_THRESHOLD, LARGEST_ON_HEAP)
                mallopt(_TRIM_THRESHOLD, 2 * LARGEST_ON_HEAP)
                malloc_trim(0)
