"""What few-shot runs are judged by: accuracy of classes, mean squared error of real targets. Nothing imports torch."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arelu_meta.analysis.estimates import Estimate


@dataclass(frozen=True)
class EpisodeMeasure:
    """The score of a query: its name in metrics, the same in figures, and which way is better.

    Args:
        name: of the metric, as in `test/NAME`.
        label: the same as figures write it.
        higher_is_better: whether more of it is better; otherwise less.

    Example:
        >>> ACCURACY.text(0.936), MSE.text(0.0418), MSE.better(0.2, than=0.3)
        ('93.6 %', '0.0418', True)
    """

    name: str
    label: str
    higher_is_better: bool

    def better(self, score: float, *, than: float) -> bool:
        """Tell whether a score is better than another; any number is better than none."""
        return math.isnan(than) or (score > than if self.higher_is_better else score < than)

    def text(self, score: float) -> str:
        """Write a score in short."""
        return f"{100 * score:.1f} %" if self.name == "accuracy" else f"{score:.3g}"

    def interval(self, estimate: "Estimate") -> str:
        """Write an estimate with half the width of its interval and the number of episodes."""
        if self.name == "accuracy":
            return estimate.percent()
        return f"{estimate.mean:.3g} ± {estimate.half_width:.2g} (n = {estimate.n})"


ACCURACY = EpisodeMeasure("accuracy", "query accuracy", higher_is_better=True)
MSE = EpisodeMeasure("mse", "mean squared error of queries", higher_is_better=False)
