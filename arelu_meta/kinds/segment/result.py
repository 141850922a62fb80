"""What a segmentation run gives back."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure

from arelu_meta.analysis.estimates import Estimate, mean_interval
from arelu_meta.console.tables import text_table
from arelu_meta.data.imageset import ImageSet
from arelu_meta.kinds.results import SupervisedResult
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.pictures.figures import overlay_figure
from arelu_meta.training.forward import predict


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SegmentResult(SupervisedResult):
    """A trained network and the Dice coefficient of each test patient's volume."""

    spec: SegmentSpec
    patients: dict[str, float]
    slices: dict[str, int]
    use: ClassVar[str] = "IMAGES... --output DIR"

    @property
    def dice(self) -> float:
        """Mean over patients."""
        return float(np.mean(list(self.patients.values())))

    @property
    def score(self) -> float:
        """Dice coefficient, mean over patients."""
        return self.dice

    def estimates(self) -> dict[str, Estimate]:
        """Give the mean Dice coefficient over patients; one patient has no interval."""
        scores = list(self.patients.values())
        none = Estimate(self.dice, math.nan, math.nan, len(scores))
        dice = mean_interval(scores).within(0.0, 1.0) if len(scores) > 1 else none
        return {f"{self.spec.evaluation.final}/dice": dice}

    def final_metrics(self) -> dict[str, float]:
        """Give the mean Dice coefficient and the number of patients."""
        return {"dice": self.dice, "n": len(self.patients)}

    def figures(self, test: ImageSet, *, title: str) -> dict[str, Figure]:
        """Draw the six slices with the largest masks, with the outlines of mask and answer."""
        if test.masks is None:
            return {}
        shown = test.masks.flatten(1).sum(1).argsort(descending=True)[:6]
        predicted = predict(self.network, test.subset(shown.cpu())) > 0
        figure = overlay_figure(test.images[shown].cpu(), predicted, test.masks[shown].cpu() > 0, title=title)
        return {"figures/overlays.png": figure}

    def texts(self) -> dict[str, str]:
        """Give Dice coefficient and number of slices of every patient."""
        rows = "".join(f"{name},{score:.6f},{self.slices[name]}\n" for name, score in self.patients.items())
        return {"patients.csv": f"patient,dice,slices\n{rows}"}

    def score_rows(self) -> list[tuple[str, str]]:
        """Give the line of the report on the Dice coefficient."""
        label = "best test epoch" if self.spec.evaluation.final != "test" else "test Dice"
        part = ", each prediction cut to its largest part" if self.spec.volumes.largest_component else ""
        return [(label, f"{100 * self.dice:.2f} %, mean over {len(self.patients)} patients' volumes{part}")]

    def table(self) -> str:
        """Dice coefficient and slices of every patient."""
        rows = [(name, f"{100 * score:.2f}", str(self.slices[name])) for name, score in self.patients.items()]
        return text_table(("patient", "Dice %", "slices"), rows)
