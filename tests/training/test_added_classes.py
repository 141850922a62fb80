"""Classes added to heads: rows of the others bit-equal, the new ones what they would be by hand or by scipy."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from arelu_meta.learners.frozen_heads import HEADS, FrozenHead
from arelu_meta.training.added_classes import add_classes


def features(labels: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    centres = 2 * torch.randn(6, width, generator=torch.Generator().manual_seed(7))
    return centres[labels] + torch.randn(len(labels), width, generator=torch.Generator().manual_seed(seed))


def made(method: str, strength, width: int = 5) -> tuple[FrozenHead, dict[str, torch.Tensor], tuple[torch.Tensor, ...]]:
    """A head for three classes, what it was, and what it is given to have five."""
    labels, new_labels = torch.arange(24) % 3, 3 + torch.arange(10) % 2
    x, new = features(labels, width, 0), features(new_labels, width, 1)
    head = HEADS[method].build(x, labels, 3, strength)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    return head, before, (x, labels, new, new_labels)


CASES = [("prototypes", "centred"), ("prototypes", "plain"), ("knn", 3), ("linear", 10.0)]


@pytest.mark.parametrize(("method", "strength"), CASES)
def test_rows_of_the_others_are_bit_equal(method, strength):
    head, before, given = made(method, strength)
    add_classes(head, *given, strength)
    for name, value in before.items():
        now = head.state_dict()[name]
        assert torch.equal(now[tuple(slice(size) for size in value.shape)], value)
    assert head(given[2]).shape == (10, 5)
    answers = head(torch.cat([given[0], given[2]])).argmax(1)
    assert (answers == torch.cat([given[1], given[3]])).float().mean() > 0.8


@pytest.mark.parametrize(("method", "strength"), [("prototypes", "plain"), ("linear", 10.0)])
def test_logits_of_the_others_do_not_move(method, strength):
    head, _, given = made(method, strength)
    before = head(given[0])
    add_classes(head, *given, strength)
    torch.testing.assert_close(head(given[0])[:, :3], before)


def test_new_prototypes_are_means():
    head, _, given = made("prototypes", "centred")
    centre = given[0].mean(0)
    add_classes(head, *given, "centred")
    for label in (3, 4):
        unit = nn.functional.normalize(given[2][given[3] == label] - centre, dim=1)
        torch.testing.assert_close(head.prototypes[label], unit.mean(0))


def test_new_neighbours_vote_for_their_class():
    head, _, given = made("knn", 1)
    add_classes(head, *given, 1)
    assert torch.equal(head(given[2]).argmax(1), given[3])
    assert head.member.sum(1).tolist() == [1.0] * 34


@pytest.mark.parametrize("width", [5, 60])
def test_new_rows_of_logistic_regression(width):
    """The loss written out anew and minimised by another method, without its gradient in closed form.

    With 34 images of 60 features the rows are fitted in the span of the images.
    """
    head, before, (x, labels, new, new_labels) = made("linear", 10.0, width)
    add_classes(head, x, labels, new, new_labels, 10.0)
    centre = x.mean(0)
    length = (x - centre).square().sum(1).mean().sqrt()
    both = (torch.cat([x, new]) - centre).double() / length
    known = both * length @ before["weight"].double().T + before["bias"].double()
    every = torch.cat([labels, new_labels])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        rows = torch.tensor(flat, requires_grad=True)
        weight, bias = rows[:-2].view(2, width), rows[-2:]
        logits = torch.cat([known, both @ weight.T + bias], 1)
        value = 10 * nn.functional.cross_entropy(logits, every, reduction="sum") + weight.square().sum() / 2
        value.backward()
        return value.item(), rows.grad.numpy()

    found = minimize(loss, np.zeros(2 * width + 2), jac=True, method="BFGS", options={"gtol": 1e-7})
    weight = torch.from_numpy(found.x[:-2].reshape(2, width)) / length
    torch.testing.assert_close(head.weight[3:].double(), weight, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(head.bias[3:].double(), torch.from_numpy(found.x[-2:]), rtol=1e-2, atol=1e-3)


def test_a_head_of_another_kind():
    with pytest.raises(TypeError, match="FrozenHead takes no new classes"):
        add_classes(FrozenHead(torch.zeros(2), unit=False), *(torch.zeros(1, 2), torch.zeros(1).long()) * 2, 1.0)
