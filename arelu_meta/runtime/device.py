"""Which device torch computes on, and with how many threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from arelu_meta.errors import InputError


def resolve_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda`, `cuda:1`, ... into a device that is present (`auto`: a GPU when there is one)."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # `meta` has devices, but no numbers
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        present = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        raise InputError(f"device {name!r} is not available here; set `device` to {' or '.join(present)}") from None
    return device


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads (0: as many as it has now), and with as many as before afterwards."""
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
