"""Losses and scores of supervised training, and the choice of the best epoch by a score."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.data.imageset import ImageSet

Loss = Callable[[Tensor, Tensor], Tensor]
MOST_POINTS = 1000  # of a curve by step in the store


def cross_entropy(images: ImageSet, *, label_smoothing: float = 0.0, class_weights: bool = False) -> Loss:
    """Give the cross-entropy of logits (N, classes) and labels (N,), or shares of the classes (N, classes).

    With `class_weights`, classes count inversely to their frequency in `images`.
    """
    weights = None
    if class_weights:
        counts = images.counts().float().clamp(min=1)
        weights = counts.sum() / (len(counts) * counts)

    def loss(output: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(output, labels, weight=weights, label_smoothing=label_smoothing)

    return loss


def dice_loss(logits: Tensor, masks: Tensor) -> Tensor:
    """One minus the soft Dice coefficient of the whole batch, smoothed by one pixel (Buda et al. 2019).

    Logits and masks are (N, 1, H, W).

    >>> round(dice_loss(torch.full((1, 1, 2, 2), 50.0), torch.ones(1, 1, 2, 2)).item(), 6)
    0.0
    """
    probability = logits.sigmoid()
    overlap = (probability * masks).sum()
    return 1 - (2 * overlap + 1) / (probability.sum() + masks.sum() + 1)


def count_correct(output: Tensor, labels: Tensor) -> Tensor:
    """Number of correct answers of a classifier; NaN for a mask, whose output has as many axes as its labels.

    Labels of images that were mixed are shares of the classes (N, classes): the largest counts.

    >>> count_correct(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    tensor(1.)
    """
    if labels.dim() == 2:
        labels = labels.argmax(1)
    if output.dim() == labels.dim():
        return output.new_full((), torch.nan, dtype=torch.float32)
    return (output.argmax(1) == labels).sum().float()


def mean_loss(loss: Loss, output: Tensor, images: ImageSet, *, batch_size: int) -> float:
    """Loss of a network's output for all images of a set, in order: the mean of batches, each by its images.

    That is how the loss of a training pass is counted; one that is no mean over images, such as the Dice loss, depends
    on the size of the batches.
    """
    total, targets = 0.0, images.labels if images.masks is None else images.masks
    for numbers in torch.arange(len(images)).split(batch_size):
        truth = targets[numbers.to(images.device)]
        truth = truth if images.masks is None else truth.float()
        total += loss(output[numbers].to(images.device), truth).item() * len(numbers)
    return total / len(images)


def thinned(losses: Sequence[float], *, done: int, total: int) -> list[tuple[int, float]]:
    """Thin the losses of consecutive steps out, so that of all steps together at most a thousand are left.

    Args:
        losses: of steps `done` + 1, `done` + 2, ...
        done: steps before these.
        total: steps of the whole training.

    Returns:
        Step and loss for every so-manieth step, the stride being total / 1000 rounded up: the mean of the losses since
        the last such step, or since the first of `losses`.

    >>> thinned([4.0, 2.0, 1.0, 3.0], done=3, total=1500)
    [(4, 4.0), (6, 1.5)]
    """
    stride = math.ceil(total / MOST_POINTS)
    points, start = [], 0
    for end in range(1, len(losses) + 1):
        if (done + end) % stride == 0:
            points.append((done + end, math.fsum(losses[start:end]) / (end - start)))
            start = end
    return points


@dataclass
class Selection:
    """The epoch with the best score so far, its weights, and the curves of all scores over the epochs."""

    best_score: float = -1.0
    epoch: int = 0
    best_state: dict[str, Tensor] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def update(self, epoch: int, score: float | None, network: nn.Module) -> None:
        """Choose this epoch if its score is better than all before; without a score, always."""
        if score is None or score > self.best_score:
            self.best_score = self.best_score if score is None else score
            self.epoch = epoch
            self.best_state = copy.deepcopy(network.state_dict())

    def out_of_patience(self, epoch: int, patience: int | None) -> bool:
        """Tell whether so many epochs have passed without a better score."""
        return patience is not None and epoch - self.epoch >= patience
