"""P>M>F: prototypes as they are trained, and a head that starts as the prototypes, fine-tuned by plain SGD."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.pmf import RATES, Pmf
from arelu_meta.learners.prototypes import ProtoNet
from arelu_meta.metrics import accuracy
from tests.learners.small_problems import WAYS, build, distance, episodes, gradients, own_net


def fine_tuned_by_hand(network: nn.Module, episode: Episode, *, steps: int, lr: float) -> Tensor:
    """Logits of the queries after steps of torch's SGD on a copy of the network with a linear layer behind it."""
    body = copy.deepcopy(network)
    means = torch.stack([body.features(episode.support_x)[episode.support_y == way].mean(0) for way in range(WAYS)])
    head = nn.Linear(means.shape[1], WAYS).to(means.dtype)
    with torch.no_grad():
        head.weight.copy_(2 * means)
        head.bias.copy_(-means.square().sum(1))
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(head(body.features(episode.support_x)), episode.support_y).backward()
        optimizer.step()
    with torch.no_grad():
        return head(body.features(episode.query_x))


def test_training_is_that_of_prototypes():
    batch, found = episodes(3), {}
    for kind in (ProtoNet, Pmf):
        network = own_net("arelu")
        outcome = kind(network).meta_step(batch, progress=0.0)
        found[kind] = (gradients(network), outcome.loss)
    assert distance(found[Pmf][0], found[ProtoNet][0]) < 1e-12
    assert found[Pmf][1] == found[ProtoNet][1]


def test_fine_tuning_is_sgd_from_the_prototypes():
    network, batch = own_net("arelu"), episodes(2)
    learner = Pmf(network, test_steps=4)
    for episode in batch:
        adapted = learner.adapt(episode.support_x, episode.support_y, lr=0.05)
        expected = fine_tuned_by_hand(network, episode, steps=4, lr=0.05)
        torch.testing.assert_close(adapted.logits(episode.query_x), expected)
        start = learner.adapt(episode.support_x, episode.support_y, lr=0.0).logits(episode.query_x)
        assert (start - expected).abs().max() > 1e-3  # the steps did something
        prototypes = ProtoNet(network).adapt(episode.support_x, episode.support_y).logits(episode.query_x)
        torch.testing.assert_close(start.softmax(-1), prototypes.softmax(-1))


def test_the_rate_is_the_one_that_validates_best():
    """Prototypes of a network whose features are saturated answer worse than after some steps."""
    network, batches = own_net(), [episodes(12, seed=seed) for seed in (5, 6)]
    with torch.no_grad():
        network.first.weight.mul_(20)
    learner, means = Pmf(network, test_steps=6), []
    for rate in RATES:
        learner.kept_rate.value = torch.tensor(rate)
        means.append(torch.cat([accuracy(learner.query_logits(batch), batch.query_y) for batch in batches]).mean())
    said = learner.choose(iter(batches))
    assert learner.rate == pytest.approx(RATES[int(torch.stack(means).argmax())])
    assert said.startswith(f"rate {learner.rate:g} of 6 steps of fine-tuning, by validation accuracy (0: ")
    fresh = Pmf(own_net())
    fresh.load_state(learner.state().state_dict())
    assert fresh.rate == learner.rate


def test_accuracy_by_step_begins_with_prototypes():
    network, batch = own_net(), episodes(5)
    learner = Pmf(network, test_steps=3)
    learner.kept_rate.value = torch.tensor(0.3)
    table = learner.accuracy_by_step(batch)
    assert table.shape == (5, 4)
    assert torch.equal(table[:, 0], ProtoNet(network).final_accuracy(batch))
    by_hand = [accuracy(fine_tuned_by_hand(network, one, steps=2, lr=0.3)[None], one.query_y[None]) for one in batch]
    torch.testing.assert_close(table[:, 2], torch.cat(by_hand))


def test_running_statistics_modes_and_frozen_parameters_stay():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, WAYS)
    network, batch = nn.Sequential(*layers), episodes(dtype=torch.float32)
    network[0].requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    learner = Pmf(network.train())
    adapted = learner.adapt(batch.support_x[0], batch.support_y[0], lr=0.1)
    adapted.logits(batch.query_x[0])
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(name.startswith("0.") for name in adapted.point)
    assert not torch.equal(adapted.point["1.weight"], before["1.weight"])
    assert not learner.transductive
    with pytest.raises(InputError, match="steps = 0; adapting takes at least 1"):
        learner.adapt(batch.support_x[0], batch.support_y[0], steps=0)


def test_any_number_of_classes():
    support, labels = torch.randn(8, 1, 4, 4).double(), torch.arange(4).repeat(2)
    assert build("pmf", own_net()).adapt(support, labels, lr=0.1).logits(support).shape == (8, 4)
