"""What processes that are started from here inherit."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def of_threads(number: int) -> dict[str, str]:
    """Variables by which numerical libraries take so many threads; read once, when they are loaded."""
    return dict.fromkeys(THREAD_VARIABLES, str(number))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
