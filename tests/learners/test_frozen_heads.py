"""Heads on frozen features, against their formulas and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from torch.nn.functional import cross_entropy

from arelu_meta.learners.frozen_heads import HEADS, LinearHead, NeighbourHead, PrototypeHead, fit_sharpness
from arelu_meta.store.graphs import trace


def clouds(count: int = 30, width: int = 5, classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around one centre per class, near enough that some are mistaken."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centres = torch.randn(classes, width, generator=random)
    return 3 + centres[labels] + torch.randn(count, width, generator=random), labels


FITTED, NEW = clouds(), clouds(seed=0, count=90)


def test_plain_prototypes_are_the_nearest_centroid():
    (x, y), (new, _) = FITTED, NEW
    expected = NearestCentroid().fit(x.numpy(), y.numpy()).predict(new.numpy())
    head = PrototypeHead(x, y, 3, "plain")
    assert head(new).argmax(1).tolist() == expected.tolist()
    means = torch.stack([x[y == label].mean(0) for label in range(3)])
    distances = torch.cdist(new, means).square()
    torch.testing.assert_close(head(new) - head(new)[:, :1], -(distances - distances[:, :1]), rtol=1e-4, atol=1e-4)


def test_centred_prototypes_do_not_see_shift_and_length():
    """SimpleShot's CL2N: (x - mean) / |x - mean|; the same direction from the mean is the same answer."""
    (x, y), (new, _) = FITTED, NEW
    head = PrototypeHead(x, y, 3, "centred")
    unit = torch.nn.functional.normalize(x - x.mean(0), dim=1)
    means = torch.stack([unit[y == label].mean(0) for label in range(3)])
    torch.testing.assert_close(head.prototypes, means)
    far = x.mean(0) + 7 * (new - x.mean(0))
    torch.testing.assert_close(head(far), head(new), rtol=1e-4, atol=1e-4)


def test_one_neighbour_is_scikit_learns_by_cosine():
    (x, y), (new, _) = FITTED, NEW
    mean = x.mean(0)
    nearest = KNeighborsClassifier(1, metric="cosine").fit((x - mean).numpy(), y.numpy())
    assert NeighbourHead(x, y, 3, 1)(new).argmax(1).tolist() == nearest.predict((new - mean).numpy()).tolist()


def test_votes_by_hand():
    """Support at 0, 60 and 90 degrees from a query after centring; two nearest: cosines 1 and 0.5."""
    head = NeighbourHead(torch.eye(2), torch.tensor([0, 1]), 2, 2)
    head.centre.zero_()
    head.support = torch.tensor([[1.0, 0.0], [0.5, 3**0.5 / 2], [0.0, 1.0]])
    head.member = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    logits = head(torch.tensor([[2.0, 0.0]]))
    expected = np.log([1 + 1e-3, np.exp(-0.5 / 0.07) + 1e-3])
    assert logits[0].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_more_neighbours_than_images_are_all_of_them():
    x, y = FITTED
    assert NeighbourHead(x[:4], y[:4], 3, 10).neighbours == 4


@pytest.mark.parametrize(("count", "classes"), [(30, 3), (30, 2), (4, 2)])
def test_linear_is_scikit_learns_logistic_regression(count, classes):
    """Also with fewer images (4) than features (5), where it is fitted in the span of the images."""
    x, y = clouds(count=count, classes=classes)
    new, _ = clouds(count=50, classes=classes)
    head = LinearHead(x, y, classes, 2.0)
    centred = (x - x.mean(0)).double().numpy()
    length = np.sqrt((centred**2).sum(1).mean())
    model = LogisticRegression(C=2.0, tol=1e-8, max_iter=10000).fit(centred / length, y.numpy())
    expected = model.predict_proba((new - x.mean(0)).double().numpy() / length)
    np.testing.assert_allclose(head(new).softmax(1).numpy(), expected, atol=2e-4)


@pytest.mark.parametrize("width", [5, 70])
def test_a_path_of_strengths_is_each_fitted_alone(width):
    """In the order that was asked for; with 70 features of 30 images in their span."""
    x, y = clouds(width=width)
    new, _ = clouds(count=50, width=width)
    strengths = (10.0, 1.0, 100.0)
    for strength, head in zip(strengths, LinearHead.path(x, y, 3, strengths), strict=True):
        centred = (x - x.mean(0)).double().numpy()
        length = np.sqrt((centred**2).sum(1).mean())
        model = LogisticRegression(C=strength, tol=1e-9, max_iter=10000).fit(centred / length, y.numpy())
        expected = model.predict_proba((new - x.mean(0)).double().numpy() / length)
        np.testing.assert_allclose(head(new).softmax(1).numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("method", HEADS)
def test_heads_can_be_stored(method):
    """Traced, they give the same logits; the sharpness is a factor."""
    (x, y), (new, _) = FITTED, NEW
    kind = HEADS[method]
    for strength in kind.strengths:
        head = kind.build(x, y, 3, strength).eval()
        logits = head(new)
        assert logits.shape == (90, 3)
        head.sharpness.fill_(0.5)
        torch.testing.assert_close(head(new), logits / 2)
        torch.testing.assert_close(trace(head, new).module()(new[:7]), head(new[:7]))


def test_sharpness_against_a_grid():
    """The least softened loss over a fine grid of factors."""
    logits = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)).double()
    labels = (logits + torch.randn(60, 4, generator=torch.Generator().manual_seed(1))).argmax(1)
    target = torch.full((60, 4), (1 / 62) / 3).double()  # 60 answers: doubt 1 / 62
    target[torch.arange(60), labels] = 61 / 62
    grid = np.exp(np.linspace(-4, 4, 4001))
    losses = [float(cross_entropy(factor * logits, target)) for factor in grid]
    assert fit_sharpness(logits.float(), labels) == pytest.approx(grid[int(np.argmin(losses))], rel=5e-3)


def test_the_scale_of_logits_does_not_matter():
    logits = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 4
    once, thousandfold = fit_sharpness(logits, labels), fit_sharpness(1000 * logits, labels)
    assert once == pytest.approx(1000 * thousandfold, rel=1e-3)


def test_twenty_right_answers_are_not_certain():
    """All right and far apart: the probability of the answer stays near 21 / 22, not at 1."""
    logits = 100 * torch.eye(2)[torch.arange(20) % 2]
    sharpness = fit_sharpness(logits, torch.arange(20) % 2)
    assert (sharpness * logits).softmax(1).amax(1).tolist() == pytest.approx([21 / 22] * 20, abs=1e-3)
