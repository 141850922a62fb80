"""Nearest class means against numpy and scikit-learn."""

import numpy as np
import pytest
import torch
import torchvision
from sklearn.neighbors import NearestCentroid
from torch import Tensor, nn

from arelu_meta import learners
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.prototypes import ProtoNet
from tests.learners.small_problems import (
    WAYS,
    build,
    central_differences,
    conv4,
    episodes,
    gradients,
    own_net,
    real_targets,
)


def shuffled(batch: Episode) -> Episode:
    """The support in another order, so that no class mean is right by position alone."""
    order = torch.randperm(batch.support_y.shape[1], generator=torch.Generator().manual_seed(5))
    return Episode(batch.support_x[:, order], batch.support_y[:, order], batch.query_x, batch.query_y)


def test_protonet_equals_plain_numpy():
    network, batch = own_net("arelu"), shuffled(episodes(3))
    learner = build("protonet", network)
    outcome = learner.meta_step(batch, progress=0.0)
    losses = []
    for number, episode in enumerate(batch):
        with torch.no_grad():
            support, query = (network.features(x).numpy() for x in (episode.support_x, episode.query_x))
        labels, wanted = episode.support_y.numpy(), episode.query_y.numpy()
        logits = np.zeros((len(query), WAYS))
        for way in range(WAYS):
            centre = np.mean([support[row] for row in range(len(support)) if labels[row] == way], axis=0)
            for row in range(len(query)):
                logits[row, way] = -sum((query[row] - centre) ** 2)
        np.testing.assert_allclose(learner.query_logits(batch)[number].detach().numpy(), logits, rtol=1e-10)
        chosen = np.array([logits[row, wanted[row]] for row in range(len(query))])
        losses.append(np.mean(np.log(np.exp(logits).sum(1)) - chosen))
        assert outcome.accuracies[number].item() == pytest.approx(np.mean(logits.argmax(1) == wanted))
    assert outcome.loss.item() == pytest.approx(np.mean(losses))


def test_gradient_of_protonet_equals_central_differences():
    network, batch = own_net("arelu"), episodes(2)
    learner = build("protonet", network)
    learner.meta_step(batch, progress=0.0)
    found = gradients(network)

    def loss() -> float:
        return learner.meta_step(batch, progress=0.0, share=0.0).loss.item()

    for name in ("first.weight", "first.bias", "act.alpha", "act.beta"):
        slopes = central_differences(loss, network.get_parameter(name))
        assert torch.allclose(found[name].view(-1)[: len(slopes)], slopes, rtol=1e-6, atol=1e-9), name


def test_a_query_on_a_prototype_keeps_its_gradient_finite():
    """The distance is zero there, whose square root has no slope; the square has slope zero."""
    network, batch = own_net(), episodes(1)
    batch = Episode(batch.support_x[:, ::2], batch.support_y[:, ::2], batch.support_x[:, ::2], batch.support_y[:, ::2])
    build("protonet", network).meta_step(batch, progress=0.0)
    assert network.first.weight.grad.isfinite().all()


@pytest.mark.parametrize("method", ["centroid", "features"])
def test_floors_equal_scikit_learns_nearest_centroid(method):
    network, batch = own_net(), shuffled(episodes(8))
    found = build(method, network).query_logits(batch).argmax(-1)
    for number, episode in enumerate(batch):
        with torch.no_grad():
            embed = network.features if method == "features" else lambda x: x.flatten(1)
            support, query = embed(episode.support_x).numpy(), embed(episode.query_x).numpy()
        expected = NearestCentroid().fit(support, episode.support_y.numpy()).predict(query)
        assert found[number].tolist() == expected.tolist()
    assert len(set(found.flatten().tolist())) > 1


def test_floors_are_declared_untrained():
    floors = ["simpleshot", "linear", "knn", "features", "centroid"]
    assert [entry.name for entry in learners.entries() if not entry.needs_training] == floors


def test_any_number_of_ways():
    """The head has three outputs; prototypes of five classes give five logits."""
    batch = Episode(
        torch.randn(1, 5, 1, 4, 4).double(), torch.arange(5).unsqueeze(0), torch.randn(1, 2, 1, 4, 4).double(),
        torch.tensor([[3, 4]]),
    )  # fmt: skip
    assert build("protonet", own_net()).query_logits(batch).shape == (1, 2, 5)


def test_what_prototypes_cannot_be_made_of():
    with pytest.raises(InputError, match="norm 'batch_support' cannot be had"):
        build("protonet", conv4(norm="batch_support"))


def test_batch_norm_ties_episodes_together_so_that_chunks_are_refused():
    with pytest.raises(InputError, match="chunk = 4, but with batch norm prototypes embed all episodes together"):
        build("protonet", conv4("arelu"), chunk=4)


class Farthest(ProtoNet):
    """The most distant class instead of the nearest."""

    def query_logits(self, episodes: Episode) -> Tensor:
        return -super().query_logits(episodes)


def test_what_a_subclass_answers_is_what_it_is_served_with():
    learner, batch = build(Farthest, own_net()), shuffled(episodes(3))
    for number, episode in enumerate(batch):
        served = learner.adapt(episode.support_x, episode.support_y).logits(episode.query_x)
        torch.testing.assert_close(served, learner.query_logits(batch)[number])
        nearest = ProtoNet(learner.network).adapt(episode.support_x, episode.support_y).logits(episode.query_x)
        torch.testing.assert_close(served, -nearest)


@pytest.mark.parametrize("method", ["protonet", "features", "centroid"])
@pytest.mark.parametrize("setting", learners.INNER_LOOP_SETTINGS)
def test_settings_of_an_inner_loop_that_there_is_not_are_refused(method: str, setting: str):
    assert learners.entry(method).settings == ()
    with pytest.raises(InputError, match=f"unknown option of method '{method}': '{setting}'"):
        learners.build(method, own_net(), **{setting: 1})


def test_features_of_a_network_without_a_method_for_them():
    """What the last layer is given; a module `features`, as torchvision has, is no method, and maps are averaged."""
    torch.manual_seed(0)
    plain, batch = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3)).double(), episodes()
    learner = build("protonet", plain)
    assert torch.equal(learner.embed(batch.support_x[0]), plain[:3](batch.support_x[0]))
    learner.meta_step(batch, progress=0.0)
    assert plain[1].weight.grad.abs().max() > 0
    assert plain[3].weight.grad is None
    network = torchvision.models.squeezenet1_1(num_classes=WAYS)
    batch = episodes(size=32, dtype=torch.float32)
    colour = Episode(*(half.expand(-1, -1, 3, -1, -1) if half.dim() == 5 else half for half in batch.tensors()))
    assert learners.build("protonet", network.eval()).embed(colour.query_x[0]).shape == (6, 512)


def test_real_targets_have_no_class_means():
    with pytest.raises(InputError, match="prototypes are means of classes, and these targets are real numbers"):
        build("protonet", own_net()).meta_step(real_targets(episodes()), progress=0.0)
