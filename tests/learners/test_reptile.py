"""Reptile: the outer gradient is the way back from the adapted weights."""

import copy

import pytest
import torch
import torch.nn.functional as F

from arelu_meta import learners
from arelu_meta.errors import InputError
from arelu_meta.learners.engines import build
from arelu_meta.training.meta import make_optimizer
from tests.learners.small_problems import distance, episodes, gradients, own_net

RATE, STEPS, TASKS = 0.2, 3, 4


def adapted_by_sgd() -> dict[str, torch.Tensor]:
    """The mean over episodes of weights after a plain loop of torch's SGD on support and query together."""
    network, mean = own_net("arelu"), {}
    for episode in episodes(TASKS):
        clone = copy.deepcopy(network)
        optimizer = torch.optim.SGD(clone.parameters(), lr=RATE)
        x, y = torch.cat([episode.support_x, episode.query_x]), torch.cat([episode.support_y, episode.query_y])
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(clone(x), y).backward()
            optimizer.step()
        for name, parameter in clone.named_parameters():
            mean[name] = mean.get(name, 0) + parameter.detach() / TASKS
    return mean


def test_outer_gradient_is_initial_minus_adapted():
    network = own_net("arelu")
    initial = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    learner = learners.build("reptile", network, inner_lr=RATE, inner_steps=STEPS)
    learner.meta_step(episodes(TASKS), progress=0.0)
    expected = {name: initial[name] - value for name, value in adapted_by_sgd().items()}
    assert distance(gradients(network), expected) < 1e-12


@pytest.mark.parametrize("epsilon", [1.0, 0.25])
def test_the_outer_step_goes_the_share_epsilon_of_the_way(epsilon):
    network = own_net("arelu")
    initial = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    learner = learners.build("reptile", network, inner_lr=RATE, inner_steps=STEPS)
    learner.meta_step(episodes(TASKS), progress=0.0)
    make_optimizer(learner, epsilon).step()
    adapted = adapted_by_sgd()
    expected = {name: initial[name] + epsilon * (adapted[name] - initial[name]) for name in initial}
    assert distance({name: parameter.detach() for name, parameter in network.named_parameters()}, expected) < 1e-12


def test_only_on_func():
    with pytest.raises(InputError, match="method 'reptile' runs on engine 'func'"):
        learners.entry("reptile").load()(own_net(), engine=build("higher"), inner_lr=RATE, inner_steps=STEPS)
