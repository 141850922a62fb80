from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.training.fitting import Fitted, accuracy_on, as_plain, cross_entropy, fit, from_plain
from arelu_meta.training.supervised import Epoch


class Scripted:
    """A trainer whose one weight is the number of its epoch, and whose scores are given."""

    def __init__(self, scores: list[float]) -> None:
        self.scores, self.done, self.tested = scores, 0, nn.Linear(1, 1, bias=False)

    def epochs(self) -> Iterator[Epoch]:
        while self.done < len(self.scores):
            self.done += 1
            nn.init.constant_(self.tested.weight, self.done)
            yield Epoch(self.done, loss=1 / self.done, accuracy=self.done / 10, images_per_second=1.0)


def fitted(scores: list[float], patience: int | None = None, resumed: Fitted | None = None, done: int = 0):
    trainer, seen = Scripted(scores), []
    trainer.done = done
    result = fit(
        trainer,
        watched="validation",
        score=lambda current: current.scores[current.done - 1],
        on_epoch=lambda epoch, values: seen.append((epoch.number, values)),
        patience=patience,
        resumed=resumed,
    )
    return result, seen


def test_the_first_of_the_best_is_kept():
    result, seen = fitted([0.1, 0.5, 0.3, 0.5])
    assert (result.best, result.selected) == (0.5, 2)
    assert result.best_state["weight"].item() == 2  # a copy: the weights went on to 4
    assert result.curves == {
        "train": [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)],
        "validation": [(1, 0.1), (2, 0.5), (3, 0.3), (4, 0.5)],
    }
    assert seen[1] == (2, {"train/loss": 0.5, "train/accuracy": 0.2, "validation/accuracy": 0.5})
    assert [number for number, _ in seen] == [1, 2, 3, 4]


def test_a_score_of_zero_is_selected_too():
    result, _ = fitted([0.0, 0.0])
    assert result.selected == 1


@pytest.mark.parametrize(("patience", "last"), [(1, 3), (2, 4), (3, 6), (None, 6)])
def test_patience(patience: int | None, last: int):
    """Best at 2, not bettered at 3 and 4, better at 5."""
    result, seen = fitted([0.1, 0.5, 0.3, 0.4, 0.6, 0.2], patience)
    assert seen[-1][0] == last
    assert result.selected == (5 if last == 6 else 2)


def test_a_resumed_fit_keeps_what_was_best():
    half, _ = fitted([0.1, 0.5])
    again = from_plain(as_plain(half))
    result, seen = fitted([0.1, 0.5, 0.3, 0.4], resumed=again, done=2)
    assert (result.best, result.selected, result.best_state["weight"].item()) == (0.5, 2, 2)
    assert [number for number, _ in result.curves["validation"]] == [1, 2, 3, 4]
    assert [number for number, _ in seen] == [3, 4]


def test_a_fit_that_had_run_out_of_patience_trains_no_further():
    """Stopped after 4 by a patience of 2, and resumed: the uninterrupted fit has no epoch 5."""
    scores = [0.1, 0.5, 0.3, 0.4, 0.6]
    stopped, _ = fitted(scores, 2)
    result, seen = fitted(scores, 2, resumed=stopped, done=4)
    assert seen == []
    assert result.selected == 2


def tiny(labels: list[int], classes: int = 3) -> ImageSet:
    count = len(labels)
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 1, 3).contiguous()
    return ImageSet("tiny", images, torch.tensor(labels), tuple("abc"[:classes]))


def test_class_weights_are_sklearns_balanced_ones():
    labels = [0] * 6 + [1] * 3 + [2]
    balanced = compute_class_weight("balanced", classes=np.arange(3), y=np.array(labels))
    logits = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor(labels)
    weights = torch.tensor(balanced, dtype=torch.float32)[targets]
    single = -logits.log_softmax(1)[torch.arange(10), targets]
    wanted = (weights * single).sum() / weights.sum()
    loss = cross_entropy(tiny(labels), class_weights=True)(logits, targets)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert loss.item() != pytest.approx(single.mean().item(), rel=1e-2)


def test_label_smoothing_by_hand():
    """Targets 0.1 / 3 on every class and 0.9 more on the label."""
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 1])
    soft = F.one_hot(targets, 3) * 0.9 + 0.1 / 3
    wanted = -(soft * logits.log_softmax(1)).sum(1).mean()
    loss = cross_entropy(tiny([0, 1, 2, 1]), label_smoothing=0.1)(logits, targets)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_plain_cross_entropy():
    """Two equal logits: log 2, whatever the frequencies."""
    loss = cross_entropy(tiny([0, 0, 0, 1], 2))
    assert loss(torch.zeros(3, 2), torch.tensor([0, 1, 1])).item() == pytest.approx(np.log(2))


def test_accuracy_on_a_set():
    """The network answers 1 for pixels above 1.5 / 255: images 2 and 3 of 0..3, labels 0 1 1 0: right are 0 and 2."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[0.0] * 3, [85.0] * 3]))  # three pixels: 255 x
        network[1].bias.copy_(torch.tensor([0.0, -1.5]))
    score = accuracy_on(tiny([0, 1, 1, 0], 2))
    assert score(SimpleNamespace(tested=network)) == 0.5
