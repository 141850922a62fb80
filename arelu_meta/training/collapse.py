"""Whether a training collapsed: it had left chance clearly, and lost most of that again."""

import statistics
from collections.abc import Sequence

LEFT_CHANCE = 0.1  # accuracy above chance from which a network has learned something
KEPT = 0.6  # share of the best accuracy above chance below which it is lost


def collapsed(accuracies: Sequence[float], chance: float, *, window: int = 1) -> bool:
    """Tell whether accuracy fell back towards chance for good.

    Accuracies are averaged over a sliding window, because batches of a few episodes scatter. The training collapsed if
    the best average was at least 0.1 above chance, and the last one is less than 0.6 times as far above it as the best.

    Args:
        accuracies: one after another, as training went on.
        chance: accuracy of guessing.
        window: how many are averaged; trainings shorter than two windows are not judged.

    >>> collapsed([0.2, 0.4, 0.6, 0.3, 0.25], chance=0.2), collapsed([0.2, 0.4, 0.6, 0.5, 0.45], chance=0.2)
    (True, False)
    """
    if len(accuracies) < 2 * window:
        return False
    ends = range(window, len(accuracies) + 1)
    above = [statistics.fmean(accuracies[end - window : end]) - chance for end in ends]
    return max(above) >= LEFT_CHANCE and above[-1] < KEPT * max(above)
