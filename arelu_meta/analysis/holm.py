"""Holm's correction of several tests made on one question."""

import math
from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected p values: comparing each with alpha keeps the chance of any false alarm below alpha.

    The smallest of m is multiplied by m, the next by m - 1, and none may fall below the one before it. A NaN is a test
    that could not be made: it stays NaN and does not count into m.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, dtype=np.float64)
    corrected = np.full(len(raw), math.nan)
    made = np.flatnonzero(~np.isnan(raw))
    order = made[np.argsort(raw[made], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(raw[order] * factors), 1.0)
    return [float(p) for p in corrected]
