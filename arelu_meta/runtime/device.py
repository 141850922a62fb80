"""Choose the device by name, with a clear answer when it is not there."""

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
        raise InputError(f"device {name!r} is not available here; use --device {' or '.join(present)}") from None
    return device
