"""What a transfer run gives back."""

import math
from dataclasses import dataclass

from arelu_meta.analysis.estimates import Estimate, proportion_interval
from arelu_meta.kinds.results import Result, block, unverified_rows, where_to_look
from arelu_meta.kinds.transfer.spec import TransferSpec


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransferResult(Result):
    """A fine-tuned network and the test accuracy on the target by setting: the rows of the paper's table.

    `curves` holds (epoch, test accuracy of the set at work) for `pretrain`, `scratch` and `finetune`.
    """

    spec: TransferSpec
    untuned: float
    curves: dict[str, list[tuple[int, float]]]
    n: int
    seconds: float

    def rows(self) -> dict[str, Estimate]:
        """Accuracy by setting: at a fixed epoch, or under the paper's protocol the best epoch up to it."""
        shares = {"no_pretrain": math.nan, "no_finetune": self.untuned}
        ends = [("no_pretrain", "scratch", self.spec.training.epochs)]
        ends += [(f"finetune_{epoch}", "finetune", epoch) for epoch in self.spec.report_epochs]
        for setting, stage, last in ends:
            seen = [score for epoch, score in self.curves.get(stage, []) if epoch <= last] or [math.nan]
            shares[setting] = max(seen) if self.spec.evaluation.protocol == "paper" else seen[-1]
        return {setting: proportion_interval(share, self.n) for setting, share in shares.items()}

    def estimates(self) -> dict[str, Estimate]:
        """Give the accuracy of every setting over the test images of the target."""
        return {f"{self.spec.evaluation.final}/{setting}": estimate for setting, estimate in self.rows().items()}

    @property
    def headline(self) -> str:
        """Accuracy on the target after the last epoch that is reported."""
        setting, estimate = list(self.rows().items())[-1]
        return f"{setting.replace('_', ' ')} {estimate.percent()}"

    def report(self) -> str:
        """Say what was run, the rows, and where to look at it."""
        spec = self.spec
        rows = [(setting.replace("_", " "), estimate.percent()) for setting, estimate in self.rows().items()]
        rows.append(("intervals", "95 %, over the test images of the target, for these networks alone"))
        if spec.evaluation.protocol == "paper":
            rows.append(("protocol", "as published: all training images, the best epoch so far on the test images"))
        else:
            rows.append(("protocol", "after that many epochs; nothing is selected on the test images"))
        rows += unverified_rows(self.verified, spec.domains.source, spec.domains.target)
        rows.append(("time", f"{self.seconds:.1f} s"))
        rows += where_to_look(self.run_id, self.experiment_id, self.tracking_uri, use="IMAGES...")
        title = (
            f"{spec.network.activation} in {spec.network.backbone}: {spec.domains.source} to {spec.domains.target}, "
            f"fine-tuned with {spec.training.optimizer} lr {spec.training.lr:g}, seed {spec.seed}"
        )
        return block(title, rows)
