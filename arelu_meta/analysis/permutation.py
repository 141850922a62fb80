"""The exact sign-flip permutation test of paired differences."""

import functools
import itertools

import numpy as np

EXACT_UP_TO = 16  # 65,536 sign patterns
DRAWS = 100_000


@functools.lru_cache(maxsize=4)
def _patterns(size: int) -> np.ndarray:
    return np.array(list(itertools.product((1.0, -1.0), repeat=size)))


def smallest_p(n: int) -> float:
    """The smallest two-sided p that n pairs can give: all signs equal is 2 of 2^n patterns.

    >>> smallest_p(5)
    0.0625
    """
    return min(1.0, 2.0 ** (1 - n)) if n else float("nan")


def sign_flip_p(differences: np.ndarray) -> float:
    """Two-sided p of the mean difference when every sign was equally likely to fall either way.

    All 2^n patterns are counted up to n = 16; beyond that 100,000 seeded draws, with the observed pattern among them so
    that p is never 0.

    >>> sign_flip_p(np.array([1.0, 2.0, 3.0]))  # only +++ and --- reach |sum| = 6: 2 of 8
    0.25
    """
    size = len(differences)
    if size == 0:
        return float("nan")
    observed = abs(float(differences.sum()))
    tolerance = 1e-12 * float(np.abs(differences).sum())  # equal sums differ in the last bits
    if size <= EXACT_UP_TO:
        return float((np.abs(_patterns(size) @ differences) >= observed - tolerance).mean())
    signs = np.random.default_rng(0).choice((1.0, -1.0), (DRAWS, size))
    return float(((np.abs(signs @ differences) >= observed - tolerance).sum() + 1) / (DRAWS + 1))
