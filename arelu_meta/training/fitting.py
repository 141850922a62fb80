"""Fit a classifier: epochs with validation, the best parameters kept, and an early end when nothing gets better."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from arelu_meta.data.imageset import ImageSet
from arelu_meta.metrics import accuracy
from arelu_meta.runtime import processes
from arelu_meta.training.supervised import Epoch, Loss, SupervisedTrainer, predict

Score = Callable[[SupervisedTrainer], float]
OnEpoch = Callable[[Epoch, dict[str, float]], None]


@dataclass
class Fitted:
    """How training went: the watched score over the epochs, and the parameters of its best epoch."""

    best: float = -1.0
    selected: int = 0
    best_state: dict[str, Tensor] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def note(self, name: str, epoch: int, value: float) -> None:
        """Add a point to a curve."""
        self.curves.setdefault(name, []).append((epoch, value))


def fit(
    trainer: SupervisedTrainer,
    *,
    watched: str,
    score: Score | None,
    on_epoch: OnEpoch,
    patience: int | None = None,
    resumed: Fitted | None = None,
) -> Fitted:
    """Train all epochs, scoring after each; end early after `patience` epochs without a better score.

    Without a score the last epoch is kept. `on_epoch` is called after each with its metrics, to log and to save.
    """
    fitted = resumed or Fitted()

    def out_of_patience() -> bool:
        return patience is not None and trainer.done - fitted.selected >= patience

    if out_of_patience():  # stopped after its last epoch, and resumed
        return fitted
    for epoch in trainer.epochs():
        values = {"train/loss": epoch.loss, "train/accuracy": epoch.accuracy}
        fitted.note("train", epoch.number, epoch.accuracy)
        if score is not None:
            values[f"{watched}/accuracy"] = processes.of_first(score(trainer))
            fitted.note(watched, epoch.number, values[f"{watched}/accuracy"])
        if score is None or values[f"{watched}/accuracy"] > fitted.best:
            fitted.best, fitted.selected = values.get(f"{watched}/accuracy", fitted.best), epoch.number
            fitted.best_state = copy.deepcopy(trainer.tested.state_dict())
        on_epoch(epoch, values)
        if out_of_patience():
            break
    return fitted


def accuracy_on(images: ImageSet) -> Score:
    """Score by the share of correct answers on a set."""
    labels = images.labels.cpu()
    return lambda trainer: accuracy(predict(trainer.tested, images), labels).item()


def cross_entropy(images: ImageSet, *, label_smoothing: float = 0.0, class_weights: bool = False) -> Loss:
    """Cross-entropy; with `class_weights`, classes count inversely to their frequency in `images`."""
    weights = None
    if class_weights:
        counts = images.counts().float().clamp(min=1)
        weights = counts.sum() / (len(counts) * counts)

    def loss(output: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(output, labels, weight=weights, label_smoothing=label_smoothing)

    return loss


def as_plain(fitted: Fitted) -> dict[str, Any]:
    """Give plain values for a checkpoint."""
    return dict(vars(fitted))


def from_plain(values: dict[str, Any]) -> Fitted:
    """Take them back out of one."""
    return Fitted(**values)
