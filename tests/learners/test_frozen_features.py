"""Classifiers on frozen features, each against scikit-learn or plain numpy."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from arelu_meta.data.episodes import Episode
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.learners import frozen_features
from arelu_meta.learners.frozen_features import C, SimpleShot
from tests.learners.small_problems import WAYS, build, episodes, own_net


def features(network, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        return network.features(episode.support_x).numpy(), network.features(episode.query_x).numpy()


def training_images(count: int = 90) -> ImageSet:
    random = torch.Generator().manual_seed(3)
    pixels = torch.randint(0, 256, (count, 1, 4, 4), dtype=torch.uint8, generator=random)
    return ImageSet("drawn", pixels, torch.arange(count) % 3, ("a", "b", "c"))


def directions(rows: np.ndarray, centre: np.ndarray) -> np.ndarray:
    return (rows - centre) / np.linalg.norm(rows - centre, axis=1, keepdims=True)


def test_simpleshot_centres_by_the_training_images(monkeypatch):
    """Nearest class mean of what is left of the mean of 90 training images, at length one; in two chunks."""
    monkeypatch.setattr(frozen_features, "AT_ONCE", 64)
    network, batch, images = own_net(dtype=torch.float32), episodes(4, dtype=torch.float32), training_images()
    learner = SimpleShot(network)
    before = learner.query_logits(batch)
    learner.observe(images)
    assert not torch.allclose(learner.query_logits(batch), before, atol=1e-3)
    with torch.no_grad():
        centre = network.features(images.pixels(torch.arange(len(images)))).numpy().mean(0)
    np.testing.assert_allclose(learner.centre.value.numpy(), centre, atol=1e-5)
    for episode, logits in zip(batch, learner.query_logits(batch), strict=True):
        support, query = (directions(rows, centre) for rows in features(network, episode))
        means = np.stack([support[episode.support_y.numpy() == way].mean(0) for way in range(WAYS)])
        distances = np.square(query[:, None] - means).sum(-1)
        np.testing.assert_allclose(np.diff(logits.numpy()), np.diff(-distances), atol=1e-4)  # up to a shift per query


def test_the_centre_is_stored_with_the_network():
    batch, learner, fresh = episodes(2, dtype=torch.float32), SimpleShot(own_net(dtype=torch.float32)), None
    learner.observe(training_images())
    fresh = SimpleShot(own_net("relu", dtype=torch.float32))
    fresh.load_state(learner.state().state_dict())
    assert torch.equal(fresh.centre.value, learner.centre.value)
    learner.load_state(SimpleShot(own_net(dtype=torch.float32)).state().state_dict())  # one without
    assert learner.centre.value is None
    assert fresh.query_logits(batch).isfinite().all()


def test_linear_is_scikit_learns_logistic_regression():
    network, batch = own_net(), episodes(6)
    found = build("linear", network).query_logits(batch)
    for episode, logits in zip(batch, found, strict=True):
        support, query = features(network, episode)
        centre = support.mean(0)
        length = np.sqrt(np.square(support - centre).sum(1).mean())
        model = LogisticRegression(C=C, tol=1e-8, max_iter=10_000).fit((support - centre) / length, episode.support_y)
        expected = model.predict_proba((query - centre) / length)
        np.testing.assert_allclose(logits.softmax(-1).numpy(), expected, atol=1e-3)


def test_knn_is_scikit_learns_with_as_many_neighbours_as_shots():
    network, batch = own_net(), episodes(8)
    one_shot = Episode(batch.support_x[:, ::2], batch.support_y[:, ::2], batch.query_x, batch.query_y)
    for episode, logits in zip(one_shot, build("knn", network).query_logits(one_shot), strict=True):
        support, query = features(network, episode)
        centre = support.mean(0)
        nearest = KNeighborsClassifier(1, metric="cosine").fit(support - centre, episode.support_y)
        assert logits.argmax(-1).tolist() == nearest.predict(query - centre).tolist()
    assert build("knn", network).fit_head(torch.rand(6, 4), torch.arange(6) % 3, 3).neighbours == 2


@pytest.mark.parametrize("method", ["simpleshot", "linear", "knn"])
def test_a_fitted_head_answers_as_tests_do(method):
    learner, batch = build(method, own_net()), episodes(2)
    for episode, expected in zip(batch, learner.query_logits(batch), strict=True):
        adapted = learner.adapt(episode.support_x, episode.support_y)
        torch.testing.assert_close(adapted.logits(episode.query_x), expected)
    with pytest.raises(InputError, match="the network stays as it is, so there are no steps; leave `steps` and `lr`"):
        learner.adapt(batch.support_x[0], batch.support_y[0], steps=3)
