"""Randomness by named stream: one seed, one independent generator per purpose.

Every activation sees the same episodes and the same initial weights because `episodes/train` and `weights` are streams
of their own: what one part draws cannot shift what another part gets.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
    with torch.random.fork_rng():
        torch.manual_seed(stream_seed(seed, stream))
        yield
