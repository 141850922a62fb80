import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.training.losses import Selection, count_correct, cross_entropy, dice_loss, mean_loss, thinned


def selected(scores: list[float | None], selection: Selection | None = None, start: int = 0) -> Selection:
    """A network whose one weight is the number of its epoch, scored as given."""
    network, selection = nn.Linear(1, 1, bias=False), selection or Selection()
    for number, score in enumerate(scores, start + 1):
        nn.init.constant_(network.weight, number)
        selection.update(number, score, network)
    return selection


def test_the_first_of_the_best_is_chosen():
    selection = selected([0.1, 0.5, 0.3, 0.5])
    assert (selection.best_score, selection.epoch) == (0.5, 2)
    assert selection.best_state["weight"].item() == 2  # a copy: the weights went on to 4


def test_a_score_of_zero_is_chosen_too():
    assert selected([0.0, 0.0]).epoch == 1


def test_without_a_score_the_last_epoch_is_chosen():
    selection = selected([None, None, None])
    assert (selection.epoch, selection.best_state["weight"].item()) == (3, 3)


@pytest.mark.parametrize(("patience", "last"), [(1, 3), (2, 4), (3, 5), (None, 5)])
def test_patience(patience: int | None, last: int):
    """Best at 2, not bettered at 3 and 4, better at 5."""
    scores = [0.1, 0.5, 0.3, 0.4, 0.6]
    stops = [epoch for epoch in range(1, 6) if selected(scores[:epoch]).out_of_patience(epoch, patience)]
    assert (stops or [5])[0] == last


def test_a_selection_continues_from_its_fields():
    half = selected([0.1, 0.5])
    half.curves["validation"] = [(2, 0.5)]
    again = selected([0.3, 0.6], Selection(**vars(half)), start=2)
    assert (again.best_score, again.epoch, again.best_state["weight"].item()) == (0.6, 4, 4)
    assert again.curves == {"validation": [(2, 0.5)]}


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


def test_dice_loss_by_hand():
    """Probabilities 1/2 on four pixels, mask of two: overlap 1, so 1 - (2 + 1) / (2 + 2 + 1) = 0.4."""
    masks = torch.tensor([1.0, 1.0, 0.0, 0.0]).view(1, 1, 2, 2)
    assert dice_loss(torch.zeros(1, 1, 2, 2), masks).item() == pytest.approx(0.4)
    assert dice_loss(torch.full((1, 1, 2, 2), -50.0), torch.zeros(1, 1, 2, 2)).item() == pytest.approx(0)
    assert dice_loss(torch.full((1, 1, 2, 2), -50.0), masks).item() == pytest.approx(1 - 1 / 3)


def test_correct_answers_of_a_classifier_and_none_of_a_segmenter():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]])
    assert count_correct(logits, torch.tensor([0, 1, 1])).item() == 2
    assert count_correct(torch.ones(2, 1, 4, 4), torch.ones(2, 1, 4, 4)).isnan()


def test_loss_of_a_set_counts_batches_by_their_images():
    """Losses 1, 2, 3, 4, 5 in batches of 2: (2 * 1.5 + 2 * 3.5 + 5) / 5, which is the mean, in whatever batches."""
    images = ImageSet("five", torch.zeros(5, 1, 1, 1, dtype=torch.uint8), torch.zeros(5).long(), ("a",))
    output = torch.arange(1.0, 6.0).view(5, 1)
    for batch_size in (1, 2, 5, 64):
        assert mean_loss(lambda x, _: x.mean(), output, images, batch_size=batch_size) == pytest.approx(3)


def test_dice_loss_of_a_set_is_the_mean_of_its_batches():
    """Sure answers: slice 0 right (1 - 3 / 3 = 0), slice 1 of two pixels missed (1 - 1 / 3); a batch each, or one."""
    masks = torch.tensor([[1, 0], [1, 1]], dtype=torch.uint8).view(2, 1, 1, 2)
    images = ImageSet("two", torch.zeros(2, 1, 1, 2, dtype=torch.uint8), torch.zeros(2).long(), ("a",), masks=masks)
    output = torch.tensor([[90.0, -90.0], [-90.0, -90.0]]).view(2, 1, 1, 2)
    assert mean_loss(dice_loss, output, images, batch_size=1) == pytest.approx((0 + 2 / 3) / 2)
    assert mean_loss(dice_loss, output, images, batch_size=2) == pytest.approx(1 - 3 / 5)  # 1 overlap, 1 and 3 marked


@pytest.mark.parametrize(("total", "stride"), [(1, 1), (1000, 1), (1001, 2), (9380, 10), (39100, 40)])
def test_at_most_a_thousand_points_are_left(total: int, stride: int):
    """20 epochs of MNIST are 9,380 steps: every tenth. Epoch by epoch or at once, the steps are the same."""
    losses = [float(step) for step in range(1, total + 1)]
    points = thinned(losses, done=0, total=total)
    assert [step for step, _ in points] == list(range(stride, total + 1, stride))
    assert len(points) <= 1000
    assert points[-1][1] == pytest.approx(points[-1][0] - (stride - 1) / 2)  # mean of the last so many steps
    half = total // 2
    parts = [*thinned(losses[:half], done=0, total=total), *thinned(losses[half:], done=half, total=total)]
    assert [step for step, _ in parts] == [step for step, _ in points]
