"""What a classification run gives back."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from arelu_meta.analysis.estimates import Estimate, mean_interval, proportion_interval
from arelu_meta.console.tables import text_table
from arelu_meta.data.imageset import ImageSet
from arelu_meta.kinds.results import SupervisedResult
from arelu_meta.metrics import confusion_matrix, top_k_accuracy
from arelu_meta.pictures.figures import confusion_figure


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClassifyResult(SupervisedResult):
    """A trained network and its answers to the test images, (images, classes) logits, in their order."""

    class_names: tuple[str, ...]
    labels: np.ndarray
    logits: np.ndarray

    @property
    def test(self) -> Estimate:
        """Top-1 accuracy with the 95 % interval over test images."""
        return mean_interval((self.logits.argmax(1) == self.labels).astype(float))

    @property
    def score(self) -> float:
        """Top-1 accuracy."""
        return self.test.mean

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

    def estimates(self) -> dict[str, Estimate]:
        """Give top-1 and top-5 accuracy over the test images."""
        final, test = self.spec.evaluation.final, self.test
        values = {f"{final}/accuracy": test}
        if self.top5 is not None:
            values[f"{final}/accuracy_top5"] = proportion_interval(self.top5, test.n)
        return values

    def final_metrics(self) -> dict[str, float]:
        """Give accuracy with its interval, top-5 accuracy and the number of test images."""
        test, top5 = self.test, self.top5
        values = {"accuracy": test.mean, "accuracy_ci95_low": test.low, "accuracy_ci95_high": test.high, "n": test.n}
        return values if top5 is None else {**values, "accuracy_top5": top5}

    def figures(self, test: ImageSet, *, title: str) -> dict[str, Figure]:
        """Draw the confusion matrix."""
        del test
        return {"figures/confusion.png": confusion_figure(self.confusion, self.class_names, title=title)}

    def texts(self) -> dict[str, str]:
        """Give label and answer of every test image."""
        rows = zip(self.labels.tolist(), self.logits.argmax(1).tolist(), strict=True)
        return {"predictions.csv": "label,prediction\n" + "".join(f"{label},{answer}\n" for label, answer in rows)}

    def score_rows(self) -> list[tuple[str, str]]:
        """Give the lines of the report on accuracy, top 5 and chance."""
        paper = self.spec.evaluation.final != "test"
        label = "best test epoch" if paper else "test accuracy"
        rows = [(label, f"{self.test.percent()}, 95 % interval over the test images")]
        if paper:
            rows.append(("", "the published measure: the epoch is chosen on the test images themselves"))
        if self.top5 is not None:
            rows.append(("top 5", f"{100 * self.top5:.2f} %"))
        return [*rows, ("chance", f"{100 / len(self.class_names):.2f} %")]

    def table(self) -> str:
        """Accuracy per class, worst first, at most twenty, with the answer it is mistaken for most."""
        counts = self.confusion
        totals = counts.sum(1)
        right = counts.diagonal() / np.maximum(totals, 1)
        wrong = counts - np.diag(counts.diagonal())
        rows = []
        for c in np.argsort(right, kind="stable")[:20]:
            mistake = f"{self.class_names[int(wrong[c].argmax())]} ({wrong[c].max()})" if wrong[c].any() else ""
            rows.append((self.class_names[c], f"{100 * right[c]:.1f}", str(totals[c]), mistake))
        return text_table(("class", "accuracy %", "images", "most mistaken for"), rows)
