"""What a classification run gives back."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from arelu_meta.analysis.estimates import Estimate, mean_interval
from arelu_meta.console.tables import text_table
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from arelu_meta.kinds.result_text import HELD_OUT, UNVERIFIED, block, part_of_set, selected, trained_on, where_to_look
from arelu_meta.metrics import confusion_matrix, top_k_accuracy


@dataclass(frozen=True, eq=False)
class ClassifyResult:
    """A trained network and its answers to the test images, (images, classes) logits, in their order."""

    spec: ClassifySpec | FineTuneSpec
    network: nn.Module
    class_names: tuple[str, ...]
    labels: np.ndarray
    logits: np.ndarray
    held_out: str
    verified: bool
    selected_epoch: int
    curves: dict[str, list[tuple[int, float]]]
    seconds: float
    run_id: str
    experiment_id: str
    tracking_uri: str

    @property
    def goal(self) -> str:
        """What was to be learned, as titles say it."""
        if isinstance(self.spec, FineTuneSpec):
            return self.spec.data.dataset
        return trained_on(self.spec.task, self.spec.data.dataset)

    @property
    def test(self) -> Estimate:
        """Top-1 accuracy with the 95 % interval over test images."""
        return mean_interval((self.logits.argmax(1) == self.labels).astype(float))

    @property
    def top5(self) -> float | None:
        """Share of images whose label is among the five largest logits; None for five classes or fewer."""
        if len(self.class_names) <= 5:
            return None
        return top_k_accuracy(torch.from_numpy(self.logits), torch.from_numpy(self.labels), 5).item()

    @property
    def confusion(self) -> np.ndarray:
        """Counts of (label, answer), (classes, classes)."""
        answers = torch.from_numpy(self.logits.argmax(1))
        return confusion_matrix(torch.from_numpy(self.labels), answers, len(self.class_names)).numpy()

    def details(self) -> list[tuple[str, str]]:
        """Labelled lines on what was trained; a network built from its spec needs none."""
        return []

    def report(self) -> str:
        """Say what was run, how well it does, against what, and where to look at it."""
        spec, paper = self.spec, self.spec.evaluation.protocol == "paper"
        label = "best test epoch" if paper else "test accuracy"
        rows = [(label, f"{self.test.percent()}, 95 % interval over the test images")]
        if paper:
            rows.append(("", "the published measure: the epoch is chosen on the test images themselves"))
        if self.top5 is not None:
            rows.append(("top 5", f"{100 * self.top5:.2f} %"))
        rows += [("chance", f"{100 / len(self.class_names):.2f} %"), ("held out", HELD_OUT[self.held_out])]
        if not self.verified:
            rows.append(UNVERIFIED)
        rows += [
            *self.details(),
            *part_of_set(spec.data),
            selected(self.selected_epoch, spec.evaluation, epochs=spec.training.epochs),
        ]
        rows.append(("time", f"{self.seconds:.1f} s"))
        rows += where_to_look(self.run_id, self.experiment_id, self.tracking_uri)
        title = (
            f"{spec.network.activation} in {spec.network.backbone}: {self.goal}, {spec.training.optimizer} "
            f"lr {spec.training.lr:g}, protocol {spec.evaluation.protocol}, seed {spec.seed}"
        )
        return f"{block(title, rows)}\n\n{self._class_table()}"

    def _class_table(self) -> str:
        """Accuracy per class, worst first, at most twenty, with the answer it is mistaken for most."""
        counts = self.confusion
        totals = counts.sum(1)
        right = counts.diagonal() / np.maximum(totals, 1)
        wrong = counts - np.diag(counts.diagonal())
        rows = [
            (self.class_names[c], f"{100 * right[c]:.1f}", str(totals[c]), self._mistake(wrong[c]))
            for c in np.argsort(right, kind="stable")[:20]
        ]
        return text_table(("class", "accuracy %", "images", "most mistaken for"), rows)

    def _mistake(self, wrong: np.ndarray) -> str:
        return f"{self.class_names[int(wrong.argmax())]} ({wrong.max()})" if wrong.any() else ""
