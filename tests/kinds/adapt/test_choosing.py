"""Choices inside the support: folds, strengths, ties."""

import sys

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import nll_loss

from arelu_meta.console.progress import silent
from arelu_meta.kinds.adapt.choosing import Choice, Support, best_of, choose_strength, stratified_folds
from arelu_meta.kinds.adapt.run import prepare
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.learners.frozen_heads import HEADS
from arelu_meta.pretrained.feature_cache import cached_features


def support(count: int = 30, classes: int = 3, noise: float = 1.0) -> Support:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    centres = torch.randn(classes, 6, generator=random)
    return Support(centres[labels] + noise * torch.randn(count, 6, generator=random), labels, classes)


def test_every_image_is_held_once_and_classes_are_even():
    """17 images of three classes (6, 6, 5) in four folds: each has one or two of each class, four or five in all."""
    labels = torch.arange(17) % 3
    parts = list(stratified_folds(labels, 4, seed=0, stream="folds"))
    assert torch.cat([held for _, held in parts]).sort().values.tolist() == list(range(17))
    for fitted, held in parts:
        assert sorted([*fitted.tolist(), *held.tolist()]) == list(range(17))
        assert set(torch.bincount(labels[held], minlength=3).tolist()) <= {1, 2}
        assert len(held) in (4, 5)
    again = list(stratified_folds(labels, 4, seed=0, stream="folds"))
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(parts, again, strict=True))
    other = list(stratified_folds(labels, 4, seed=1, stream="folds"))
    assert any(not torch.equal(a, b) for (_, a), (_, b) in zip(parts, other, strict=True))


def test_the_accuracy_is_that_of_answers_to_images_left_out():
    """Logistic regression of scikit-learn, fold by fold, with the same C."""
    given = support()
    choice = choose_strength("linear", given, 5, seed=3, stream="folds")
    right = 0
    for fitted, held in stratified_folds(given.labels, 5, seed=3, stream="folds"):
        x = given.features[fitted].double()
        mean, length = x.mean(0), (x - x.mean(0)).square().sum(1).mean().sqrt()
        model = LogisticRegression(C=choice.strength, tol=1e-8, max_iter=5000)
        model.fit(((x - mean) / length).numpy(), given.labels[fitted].numpy())
        new = ((given.features[held].double() - mean) / length).numpy()
        right += int((model.predict(new) == given.labels[held].numpy()).sum())
    assert choice.accuracy == pytest.approx(right / 30)


def test_more_features_than_images_are_brought_to_their_span():
    """40 features that are the same six turned: the same choice; all distances stay as they were."""
    given = support(noise=0.7)
    turn, _ = torch.linalg.qr(torch.randn(40, 6, generator=torch.Generator().manual_seed(1)))
    wide = Support(given.features @ turn.T, given.labels, 3)
    small = wide.in_span()
    assert small.features.shape == (30, 6)
    one, two = ((x.unsqueeze(0) - x.unsqueeze(1)).norm(dim=2) for x in (small.features, wide.features))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    assert given.in_span() is given
    for method in HEADS:
        one, two = (choose_strength(method, each, 5, seed=0, stream="folds") for each in (given, wide))
        assert (one.strength, one.accuracy) == (two.strength, two.accuracy)
        assert one.loss == pytest.approx(two.loss, rel=1e-4)


def test_a_strength_that_is_better_is_chosen():
    """Four classes on a line: centred and at length one, two and two of them are one. By direction, lengths mislead."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    noise = 0.05 * torch.randn(40, 3, generator=random)
    line = Support(labels.unsqueeze(1) * torch.tensor([1.0, 0, 0]) + noise, labels, 4)
    chosen = choose_strength("prototypes", line, 5, seed=0, stream="f")
    assert (chosen.strength, chosen.accuracy) == ("plain", 1.0)
    ways = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]])
    lengths = 10 ** (2 * torch.rand(40, 1, generator=random))
    fan = Support(ways[labels] * lengths * (1 + noise), labels, 4)
    assert choose_strength("prototypes", fan, 5, seed=0, stream="f").strength == "centred"


def test_noise_is_at_chance():
    """Labels that have nothing to do with the features: choosing the best of four strengths gains little."""
    random = torch.Generator().manual_seed(5)
    given = Support(torch.randn(300, 6, generator=random), torch.arange(300) % 3, 3)
    for method in HEADS:
        assert choose_strength(method, given, 5, seed=0, stream="folds").accuracy < 0.45


def test_ties_go_to_the_likelier_answers_then_to_the_first():
    one = Choice("prototypes", "centred", 0.9, 0.5, 1.0)
    two = Choice("knn", 1, 0.9, 0.4, 1.0)
    three = Choice("linear", 1.0, 0.8, 0.1, 1.0)
    same = Choice("linear", 10.0, 0.9, 0.4, 1.0)
    assert best_of([one, two, three, same]) is two


@pytest.mark.parametrize("method", HEADS)
def test_a_choice_is_fitted_with_its_sharpness(method):
    given = support()
    choice = choose_strength(method, given, 5, seed=0, stream="folds")
    head = choice.fit(given)
    plain = HEADS[method].build(given.features, given.labels, 3, choice.strength)
    torch.testing.assert_close(head(given.features), choice.sharpness * plain(given.features))


def calibration_error(probabilities: torch.Tensor, labels: torch.Tensor) -> float:
    """Expected calibration error (Guo et al. 2017), 15 bins: how far shares of right answers are from what is said."""
    said, answers = probabilities.max(1)
    right, bins = (answers == labels).float(), (15 * said).long().clamp(max=14)
    return sum(abs(float((right - said)[bins == number].sum())) for number in range(15)) / len(labels)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(("name", "ways", "others"), [("cifar100", 20, 40), ("omniglot", 20, 10), ("svhn", 10, 60)])
@pytest.mark.filterwarnings("ignore::arelu_meta.data.readers.UnverifiedData", "ignore:.* left out of")
def test_probabilities_on_real_images(name, ways, others, published_data, tmp_path, monkeypatch):
    """EfficientNet-Lite0 at 96 pixels, 5 and 10 shots, ten draws: the mean probability is near the accuracy.

    With labels softened by 1 / (shots + 2) instead it is up to 25 points too low. `-s` shows what is measured.
    """
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path))
    data = {"dataset": name, "ways": ways, "shots": 10, "test_per_class": others}
    made = prepare(AdaptSpec(task="t", data=data, input={"image_size": 96}), root=str(published_data))
    images, device = made.drawn.images, torch.device("cpu")
    x = cached_features(made.network, images, made.inputs, name=name, device=device, bar=silent).features
    whole = Support(x, images.labels, ways)
    for shots in (5, 10):
        sums = {method: torch.zeros(4, dtype=torch.float64) for method in HEADS}
        for draw in range(10):
            random = torch.Generator().manual_seed(draw)
            members = [torch.nonzero(images.labels == label).squeeze(1) for label in range(ways)]
            members = [some[torch.randperm(len(some), generator=random)] for some in members]
            given = whole.part(torch.cat([some[:shots] for some in members]))
            test = whole.part(torch.cat([some[10:] for some in members]))
            for method in HEADS:
                choice = choose_strength(method, given, 5, seed=draw, stream="f")
                shares = test.answers(choice.fit(given)).softmax(1)
                accuracy, said = (shares.argmax(1) == test.labels).double().mean(), shares.amax(1).double().mean()
                measured = [calibration_error(shares, test.labels), nll_loss(shares.log(), test.labels), said, accuracy]
                sums[method] += torch.tensor(measured, dtype=torch.float64) / 10
        for method, (error, loss, said, accuracy) in sums.items():
            shown = f"{100 * said:.1f} % said, {100 * accuracy:.1f} % right, ECE {error:.3f}, NLL {loss:.3f}"
            sys.stdout.write(f"\n{name}, {shots} shots, {method}: {shown}")
            assert abs(said - accuracy) < 0.12
