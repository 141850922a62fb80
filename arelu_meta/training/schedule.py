"""The learning rate over the epochs, as a factor of its start."""

import math
from collections.abc import Sequence
from typing import Literal

Schedule = Literal["constant", "step", "cosine"]


def rate_factor(
    epoch: float, *, schedule: Schedule, epochs: int, milestones: Sequence[int] = (), warmup_epochs: int = 0
) -> float:
    """Factor of the learning rate at a point in training, `epoch` counting passes from 0 with fractions.

    >>> rate_factor(60, schedule="step", epochs=100, milestones=[50, 75])
    0.1
    >>> rate_factor(0.5, schedule="constant", epochs=10, warmup_epochs=2)
    0.25
    >>> round(rate_factor(5, schedule="cosine", epochs=10), 3)
    0.5
    """
    if epoch < warmup_epochs:
        return epoch / warmup_epochs
    if schedule == "step":
        return float(0.1 ** sum(epoch >= milestone for milestone in milestones))
    if schedule == "cosine":
        done = (epoch - warmup_epochs) / max(epochs - warmup_epochs, 1e-9)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    return 1.0
