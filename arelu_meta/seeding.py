"""Randomness by named stream: one seed, one independent generator per purpose.

Every activation sees the same episodes and the same initial weights because `episodes/train` and `weights` are streams
of their own: what one part draws cannot shift what another part gets.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def stream_seed(seed: int, stream: str) -> int:
    """Derive the seed of a named stream: the first 63 bits of SHA-256 of `seed/stream`.

    >>> stream_seed(0, "weights") == stream_seed(0, "weights"), stream_seed(0, "weights") == stream_seed(1, "weights")
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:8], "big") >> 1


def generator(seed: int, stream: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Make the generator of a named stream.

    Args:
        seed: seed of the run
        stream: what is drawn, such as `episodes/test`
        device: where it is drawn

    Returns:
        A generator at the start of the stream.

    >>> a, b = generator(0, "episodes/test"), generator(0, "episodes/test")
    >>> torch.equal(torch.rand(3, generator=a), torch.rand(3, generator=b))
    True
    """
    return torch.Generator(device=device).manual_seed(stream_seed(seed, stream))


@contextmanager
def global_stream(seed: int, stream: str) -> Iterator[None]:
    """Draw torch's global randomness (layer initialisation, RReLU slopes) from a named stream, then restore it.

    Args:
        seed: seed of the run
        stream: what is drawn, such as `weights`

    >>> with global_stream(0, "weights"):
    ...     first = torch.nn.Linear(2, 2).weight
    >>> with global_stream(0, "weights"):
    ...     second = torch.nn.Linear(2, 2).weight
    >>> torch.equal(first, second)
    True
    """
    with forked_generators():
        torch.manual_seed(stream_seed(seed, stream))
        yield


@contextmanager
def forked_generators() -> Iterator[None]:
    """Restore torch's global generators in the end: the CPU's, and that of the GPU in use where there is one.

    `torch.random.fork_rng()` alone would open every GPU of the machine, in every process.
    """
    with torch.random.fork_rng(devices=_gpu_in_use()):
        yield


def generator_states() -> dict[str, Tensor]:
    """Give the states of the same generators as a checkpoint keeps them: `global_random`, and on a GPU `gpu_random`."""
    states = {"global_random": torch.get_rng_state()}
    for device in _gpu_in_use():
        states["gpu_random"] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(states: Mapping[str, Any]) -> None:
    """Go on where the states of a checkpoint were taken; one of a CPU leaves the generator of a GPU as it is."""
    torch.set_rng_state(states["global_random"])
    if "gpu_random" in states:
        for device in _gpu_in_use():
            torch.cuda.set_rng_state(states["gpu_random"], device)


def _gpu_in_use() -> list[int]:
    """The current GPU of this process, once it has used one: asking before would open it."""
    return [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
