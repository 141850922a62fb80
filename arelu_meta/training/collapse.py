"""Whether a training collapsed: it had left chance clearly, and lost most of that again."""

import statistics
from collections.abc import Sequence

LEFT_CHANCE = 0.1  # accuracy above chance from which a network has learned something
KEPT = 0.6  # share of the best accuracy above chance below which it is lost


def collapsed(accuracies: Sequence[float], chance: float, *, window: int = 1) -> tuple[int, float, float] | None:
    """Find out whether accuracy fell back towards chance for good.

    Accuracies are averaged over a sliding window, because batches of a few episodes scatter. The training collapsed if
    the best average was at least 0.1 above chance, and the last one is less than 0.6 times as far above it as the best.

    Args:
        accuracies: one after another, as training went on.
        chance: accuracy of guessing.
        window: how many are averaged: as many as hold 100 episodes or more, or the best average is a matter of luck.
            Trainings shorter than two windows are not judged.

    Returns:
        Where the best average ends, counted from 0, that average and the last one; None where nothing collapsed.

    >>> collapsed([0.2, 0.4, 0.6, 0.3, 0.25], chance=0.2), collapsed([0.2, 0.4, 0.6, 0.5, 0.45], chance=0.2)
    ((2, 0.6, 0.25), None)
    """
    if len(accuracies) < 2 * window:
        return None
    averages = [statistics.fmean(accuracies[end - window : end]) for end in range(window, len(accuracies) + 1)]
    best, end = max(averages), averages[-1]
    if best - chance < LEFT_CHANCE or end - chance >= KEPT * (best - chance):
        return None
    return averages.index(best) + window - 1, best, end
