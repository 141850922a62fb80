"""Metrics of predictions, as pure functions. Accuracies, errors and `dice` also run under `vmap`."""

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from arelu_meta.errors import InputError

__all__ = [
    "accuracy",
    "confusion_matrix",
    "dice",
    "largest_component",
    "mean_squared_error",
    "top_k_accuracy",
    "volume_dice",
]


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of rows whose largest logit is the label.

    Args:
        logits: scores, (..., N, classes)
        labels: class numbers, (..., N)

    Returns:
        Shares from 0 to 1, (...).

    >>> logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0], [1.0, 0.0]])
    >>> accuracy(logits, torch.tensor([0, 1, 1, 0])).item()
    0.75
    """
    return (logits.argmax(-1) == labels).float().mean(-1)


def mean_squared_error(predictions: Tensor, targets: Tensor) -> Tensor:
    """Mean of squared differences over rows and targets.

    Args:
        predictions: real numbers, (..., N, d)
        targets: real numbers, (..., N, d); leading axes are broadcast

    Returns:
        Means, (...).

    >>> mean_squared_error(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [5.0]])).item()
    4.5
    """
    return (predictions - targets).square().mean((-2, -1))


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """Share of rows whose label is among the k largest logits.

    Args:
        logits: scores, (..., N, classes)
        labels: class numbers, (..., N)
        k: how many of the largest logits count

    Returns:
        Shares from 0 to 1, (...).

    Raises:
        InputError: `k` is below 1 or above the number of classes.

    >>> top_k_accuracy(torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), torch.tensor([1, 2]), k=2).item()
    0.5
    """
    if not 1 <= k <= logits.shape[-1]:
        raise InputError(f"k must lie between 1 and the {logits.shape[-1]} classes, not {k}")
    return (logits.topk(k, -1).indices == labels.unsqueeze(-1)).any(-1).float().mean(-1)


def confusion_matrix(labels: Tensor, predictions: Tensor, classes: int) -> Tensor:
    """Count pairs of label and prediction.

    Args:
        labels: true class numbers, (N,)
        predictions: predicted class numbers, (N,)
        classes: number of classes

    Returns:
        Counts, (classes, classes): labels in rows, predictions in columns.

    Raises:
        InputError: the shapes differ, or a number is negative or not below `classes`.

    >>> confusion_matrix(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), classes=2).tolist()
    [[1, 0], [1, 1]]
    """
    if labels.shape != predictions.shape:
        raise InputError(f"labels {tuple(labels.shape)} and predictions {tuple(predictions.shape)} differ in shape")
    for kind, values in (("labels", labels), ("predictions", predictions)):
        if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < classes:
            raise InputError(
                f"{kind} from {int(values.min())} to {int(values.max())} do not all lie below {classes} classes"
            )
    pairs = labels.flatten().long() * classes + predictions.flatten().long()
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def dice(prediction: Tensor, truth: Tensor) -> Tensor:
    """Dice similarity coefficient `2 |P and T| / (|P| + |T|)` of each item's masks.

    Two empty masks agree: 1. One empty mask: 0, by the formula.

    Args:
        prediction: masks, (N, ...), boolean or of integers, where all but zero is inside
        truth: masks of the same shape

    Returns:
        Coefficients from 0 to 1, (N,).

    Raises:
        InputError: the shapes differ, or the masks are of floating point, such as logits.

    >>> dice(torch.tensor([[1, 1, 1], [0, 0, 0]]), torch.tensor([[0, 1, 0], [0, 0, 0]])).tolist()
    [0.5, 1.0]
    """
    return _ratio(*_overlap_and_total(prediction, truth))


def volume_dice(prediction: Tensor, truth: Tensor, groups: Tensor) -> dict[int, float]:
    """Dice coefficient of each patient's volume, all of its slices taken as one item.

    Not the mean over slices: a slice counts as much as it has pixels inside (Buda et al. 2019, arXiv 1906.03720). A
    patient without any pixel inside in either is 1.

    Args:
        prediction: masks of slices, (N, ...), boolean or of integers
        truth: masks of the same shape
        groups: the patient of each slice, (N,)

    Returns:
        Coefficients from 0 to 1 by patient.

    Raises:
        InputError: as `dice`, or `groups` is not of one number for each slice.

    >>> truth = torch.tensor([[1, 0], [0, 0], [0, 0]])
    >>> volume_dice(torch.tensor([[1, 1], [1, 0], [0, 0]]), truth, groups=torch.tensor([5, 5, 7]))
    {5: 0.5, 7: 1.0}
    """
    if groups.shape != prediction.shape[:1]:
        raise InputError(f"groups {tuple(groups.shape)} do not name a patient for each of {len(prediction)} slices")
    overlap, total = _overlap_and_total(prediction, truth)
    patients, place = groups.unique(return_inverse=True)
    overlap = overlap.new_zeros(len(patients)).index_add(0, place, overlap)
    total = total.new_zeros(len(patients)).index_add(0, place, total)
    return dict(zip(patients.tolist(), _ratio(overlap, total).tolist(), strict=True))


def largest_component(volume: Tensor) -> Tensor:
    """Keep the largest connected part of a mask, as Buda et al. 2019 do before they take the Dice coefficient.

    Pixels are connected through the faces they share, in a volume also from slice to slice. Of parts that are equally
    large the first stays; an empty mask stays empty.

    Args:
        volume: one mask of any number of axes, such as (slices, H, W), boolean or of integers

    Returns:
        The mask of that part, boolean, on the same device.

    >>> largest_component(torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 1]])).int().tolist()
    [[1, 0, 0], [1, 0, 0], [0, 0, 0]]
    """
    parts, count = ndimage.label(volume.bool().cpu().numpy())
    if not count:
        return torch.zeros_like(volume, dtype=torch.bool)
    sizes = np.bincount(parts.ravel())[1:]  # without the background, part 0
    return torch.from_numpy(parts == 1 + sizes.argmax()).to(volume.device)


def _overlap_and_total(prediction: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Pixels inside both masks, and inside the one plus inside the other, each (N,) and whole numbers."""
    if prediction.shape != truth.shape:
        raise InputError(f"prediction {tuple(prediction.shape)} and truth {tuple(truth.shape)} are not of one size")
    for mask in (prediction, truth):
        if mask.is_floating_point():
            raise InputError(f"dice takes masks, not {mask.dtype}; cut logits at zero first: logits > 0")
    inside, true = prediction.bool().flatten(1), truth.bool().flatten(1)
    return (inside & true).sum(1), inside.sum(1) + true.sum(1)


def _ratio(overlap: Tensor, total: Tensor) -> Tensor:
    return torch.where(total > 0, 2 * overlap / total.clamp(min=1), 1.0)
