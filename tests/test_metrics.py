"""Accuracy, top-k, confusion and dice beside scikit-learn and torchmetrics, and the cases the formula leaves open."""

import numpy as np
import pytest
import sklearn.metrics
import torch
from scipy import ndimage
from torch import Tensor
from torchmetrics.functional.classification import binary_f1_score
from torchmetrics.functional.segmentation import dice_score

from arelu_meta.errors import InputError
from arelu_meta.metrics import (
    accuracy,
    confusion_matrix,
    dice,
    largest_component,
    mean_squared_error,
    top_k_accuracy,
    volume_dice,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_masks(n: int, share: float, seed: int) -> Tensor:
    return torch.rand(n, 1, 9, 7, generator=generator(seed)) < share


def test_accuracy_as_scikit_learn():
    random = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(50, 4, generator=random), torch.randint(4, (50,), generator=random)
    assert abs(accuracy(logits, labels).item() - sklearn.metrics.accuracy_score(labels, logits.argmax(1))) < 1e-7


def test_accuracy_keeps_leading_axes():
    """Two episodes of two rows: one of two right, two of two right."""
    logits = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    assert accuracy(logits, torch.tensor([[0, 1], [1, 0]])).tolist() == [0.5, 1.0]


def test_mean_squared_error_as_scikit_learn():
    predictions, targets = torch.rand(2, 9, 2, dtype=torch.float64), torch.rand(2, 9, 2, dtype=torch.float64)
    found = mean_squared_error(predictions, targets)
    expected = [sklearn.metrics.mean_squared_error(y, x) for x, y in zip(predictions, targets, strict=True)]
    assert found.tolist() == pytest.approx(expected)


def test_accuracy_under_vmap():
    random = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(3, 5, 4, generator=random), torch.randint(4, (3, 5), generator=random)
    assert torch.equal(torch.vmap(accuracy)(logits, labels), accuracy(logits, labels))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_as_scikit_learn(k: int):
    logits = torch.randn(200, 10, generator=generator())
    labels = torch.randint(10, (200,), generator=generator(1))
    expected = sklearn.metrics.top_k_accuracy_score(labels.numpy(), logits.numpy(), k=k, labels=range(10))
    assert top_k_accuracy(logits, labels, k).item() == pytest.approx(expected)


def test_top_one_is_accuracy_and_top_all_is_one():
    logits = torch.randn(3, 50, 4, generator=generator())
    labels = torch.randint(4, (3, 50), generator=generator(1))
    assert torch.equal(top_k_accuracy(logits, labels, 1), accuracy(logits, labels))
    assert top_k_accuracy(logits, labels, 4).tolist() == [1, 1, 1]
    together = torch.vmap(lambda x, y: top_k_accuracy(x, y, 2))(logits, labels)
    assert torch.equal(together, top_k_accuracy(logits, labels, 2))


@pytest.mark.parametrize("k", [0, 5])
def test_top_k_of_more_than_there_are(k: int):
    with pytest.raises(InputError, match=f"between 1 and the 4 classes, not {k}"):
        top_k_accuracy(torch.zeros(2, 4), torch.zeros(2), k)


def test_confusion_matrix_as_scikit_learn():
    """Class 3 is never a label and class 0 never predicted."""
    labels = torch.randint(3, (100,), generator=generator())
    predictions = torch.randint(1, 4, (100,), generator=generator(1))
    expected = sklearn.metrics.confusion_matrix(labels.numpy(), predictions.numpy(), labels=range(5))
    assert confusion_matrix(labels, predictions, 5).tolist() == expected.tolist()


def test_confusion_matrix_of_nothing():
    empty = torch.zeros(0, dtype=torch.long)
    assert confusion_matrix(empty, empty, 2).tolist() == [[0, 0], [0, 0]]


def test_confusion_matrix_of_bad_input():
    three = torch.tensor([0, 1, 2])
    with pytest.raises(InputError, match="labels from 0 to 2 do not all lie below 2 classes"):
        confusion_matrix(three, three.clamp(max=1), 2)
    with pytest.raises(InputError, match="predictions from -1 to 1 "):
        confusion_matrix(three, three - 1, 3)
    with pytest.raises(InputError, match=r"\(3,\) and predictions \(2,\)"):
        confusion_matrix(three, three[:2], 3)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_dice_as_scikit_learn_and_torchmetrics(share: float):
    """The Dice coefficient of one item is the F1 score of its pixels."""
    prediction, truth = random_masks(20, share, 0), random_masks(20, 0.4, 1)
    found = dice(prediction, truth)
    for item in range(20):
        pixels = truth[item].flatten(), prediction[item].flatten()
        assert found[item].item() == pytest.approx(sklearn.metrics.f1_score(*pixels, zero_division=1))
        assert found[item].item() == pytest.approx(binary_f1_score(pixels[1], pixels[0]).item())


def test_dice_as_torchmetrics_dice_score():
    prediction, truth = random_masks(20, 0.3, 0), random_masks(20, 0.4, 1)
    expected = dice_score(prediction.long(), truth.long(), num_classes=1, average="macro", input_format="one-hot")
    assert torch.allclose(dice(prediction, truth), expected)


def test_dice_of_empty_masks():
    empty, some = torch.zeros(1, 4, 4, dtype=torch.bool), torch.eye(4, dtype=torch.bool)[None]
    assert dice(empty, empty).tolist() == [1]
    assert dice(some, empty).tolist() == [0]
    assert dice(empty, some).tolist() == [0]
    assert dice(some, some).tolist() == [1]
    assert dice(some, ~some).tolist() == [0]


def test_dice_takes_integers_and_runs_under_vmap():
    prediction, truth = random_masks(20, 0.3, 0), random_masks(20, 0.4, 1)
    expected = dice(prediction, truth)
    assert torch.equal(dice(prediction.to(torch.uint8) * 255, truth.long()), expected)
    together = torch.vmap(dice)(prediction.unflatten(0, (4, 5)), truth.unflatten(0, (4, 5)))
    assert torch.equal(together.flatten(), expected)


def test_dice_of_bad_input():
    masks = random_masks(2, 0.5, 0)
    with pytest.raises(InputError, match=r"prediction \(2, 1, 9, 7\) and truth \(2, 1, 9, 6\) are not of one size"):
        dice(masks, masks[..., :6])
    with pytest.raises(InputError, match=r"not torch\.float32; cut logits at zero"):
        dice(masks.float(), masks)


def test_volume_dice_is_that_of_the_joined_slices():
    prediction, truth = random_masks(12, 0.3, 0), random_masks(12, 0.4, 1)
    groups = torch.tensor([4, 9, 9, 0, 4, 0, 9, 9, 4, 0, 4, 9])  # patients in mixed order
    found = volume_dice(prediction, truth, groups)
    assert list(found) == [0, 4, 9]
    for patient, value in found.items():
        rows = groups == patient
        assert value == pytest.approx(sklearn.metrics.f1_score(truth[rows].flatten(), prediction[rows].flatten()))


def test_volume_dice_weighs_slices_by_their_pixels():
    """Slice a: 4 of 4 right. Slice b: one pixel predicted where nothing is. Volume: 2 * 4 / (5 + 4), mean: 1/2."""
    prediction = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    truth = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0]])
    assert volume_dice(prediction, truth, torch.tensor([3, 3])) == {3: pytest.approx(8 / 9)}
    assert dice(prediction, truth).mean().item() == 0.5


def test_volume_dice_of_a_patient_without_masks():
    empty, some = torch.zeros(2, 4, dtype=torch.bool), torch.ones(2, 4, dtype=torch.bool)
    assert volume_dice(empty, empty, torch.tensor([1, 1])) == {1: 1.0}
    assert volume_dice(some, empty, torch.tensor([1, 1])) == {1: 0.0}


def test_volume_dice_needs_a_patient_for_each_slice():
    with pytest.raises(InputError, match=r"groups \(3,\) do not name a patient for each of 2 slices"):
        volume_dice(random_masks(2, 0.5, 0), random_masks(2, 0.5, 1), torch.tensor([1, 1, 2]))


def test_the_largest_part_of_two():
    """A bar of 3 pixels through slices 0 to 2, and a square of 4 in slice 1 that touches it at a corner only."""
    volume = torch.zeros(3, 5, 5, dtype=torch.bool)
    volume[:, 0, 0] = True
    volume[1, 1:3, 1:3] = True
    assert largest_component(volume).nonzero().tolist() == [[1, 1, 1], [1, 1, 2], [1, 2, 1], [1, 2, 2]]
    volume[1, 0, 1] = True  # now the two share faces: all 8 are one
    assert torch.equal(largest_component(volume), volume)


def test_parts_as_scipy_counts_them():
    """Random volumes: the largest part is that of the most frequent label, whatever the number of parts."""
    draw = np.random.default_rng(0)
    for density in (0.1, 0.3, 0.5):
        volume = draw.random((6, 12, 12)) < density
        labels, count = ndimage.label(volume, ndimage.generate_binary_structure(3, 1))
        sizes = ndimage.sum_labels(volume, labels, range(1, count + 1))
        found = largest_component(torch.from_numpy(volume.astype(np.int64))).numpy()
        assert found.sum() == max(sizes) < volume.sum()
        assert len(np.unique(labels[found])) == 1


def test_no_part_of_an_empty_mask():
    assert not largest_component(torch.zeros(2, 3, 3, dtype=torch.uint8)).any()
