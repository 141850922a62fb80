"""Joint training: gradients of a plain batch, tests that adapt."""

import pytest
import torch
import torch.nn.functional as F

from arelu_meta import learners
from tests.learners.small_problems import build, distance, episodes, gradients, own_net, real_targets


@pytest.mark.parametrize("engine", ["func", "higher", "learn2learn"])
def test_the_gradient_is_that_of_one_batch_of_all_points(engine):
    """Every episode has as many points, so that the mean of their means is the mean over all."""
    network, batch = own_net("arelu"), real_targets(episodes(3))
    outcome = build("joint", network, engine=engine, loss=F.mse_loss).meta_step(batch, progress=0.0)
    found = gradients(network)
    x = torch.cat([batch.support_x, batch.query_x], 1).flatten(0, 1)
    y = torch.cat([batch.support_y, batch.query_y], 1).flatten(0, 1)
    loss = F.mse_loss(network(x), y)
    loss.backward()
    assert distance(found, gradients(network)) < 1e-12
    assert outcome.loss.item() == pytest.approx(loss.item())
    queries = (network(batch.query_x.flatten(0, 1)).view_as(batch.query_y) - batch.query_y).square().mean((1, 2))
    assert torch.allclose(outcome.accuracies, queries)


def test_tests_adapt_as_those_of_maml():
    batch = real_targets(episodes(3))
    joint, maml = (
        learners.build(method, own_net(), inner_lr=0.1, inner_steps=1, test_steps=4, loss=F.mse_loss)
        for method in ("joint", "maml")
    )
    assert joint.accuracy_by_step(batch).shape == (3, 5)
    assert torch.equal(joint.accuracy_by_step(batch), maml.accuracy_by_step(batch))
