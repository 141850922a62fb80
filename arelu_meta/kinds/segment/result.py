"""What a segmentation run gives back."""

from dataclasses import dataclass

import numpy as np
from torch import nn

from arelu_meta.console.tables import text_table
from arelu_meta.kinds.result_text import HELD_OUT, UNVERIFIED, block, part_of_set, selected, trained_on, where_to_look
from arelu_meta.kinds.segment.spec import SegmentSpec


@dataclass(frozen=True, eq=False)
class SegmentResult:
    """A trained network and the Dice coefficient of each test patient's volume."""

    spec: SegmentSpec
    network: nn.Module
    patients: dict[str, float]
    slices: dict[str, int]
    held_out: str
    verified: bool
    selected_epoch: int
    curves: dict[str, list[tuple[int, float]]]
    seconds: float
    run_id: str
    experiment_id: str
    tracking_uri: str

    @property
    def dice(self) -> float:
        """Mean over patients."""
        return float(np.mean(list(self.patients.values())))

    def report(self) -> str:
        """Say what was run, how well it does patient by patient, and where to look at it."""
        spec, paper = self.spec, self.spec.evaluation.protocol == "paper"
        label = "best test epoch" if paper else "test Dice"
        rows = [(label, f"{100 * self.dice:.2f} %, mean over {len(self.patients)} patients' volumes")]
        rows.append(("held out", HELD_OUT[self.held_out]))
        if not self.verified:
            rows.append(UNVERIFIED)
        rows += [*part_of_set(spec.data), selected(self.selected_epoch, spec.evaluation, epochs=spec.training.epochs)]
        rows.append(("time", f"{self.seconds:.1f} s"))
        rows += where_to_look(self.run_id, self.experiment_id, self.tracking_uri)
        goal = trained_on(spec.task, spec.data.dataset)
        title = (
            f"{spec.network.activation} in unet: {goal}, {spec.training.optimizer} lr {spec.training.lr:g}, "
            f"protocol {spec.evaluation.protocol}, seed {spec.seed}"
        )
        table = [(name, f"{100 * score:.2f}", str(self.slices[name])) for name, score in self.patients.items()]
        return f"{block(title, rows)}\n\n{text_table(('patient', 'Dice %', 'slices'), table)}"
