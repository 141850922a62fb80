"""What learners keep and take over."""

import pytest
import torch
from torch import nn

from arelu_meta import learners
from tests.learners.small_problems import WAYS, build, conv4, episodes


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, WAYS)).double()


@pytest.mark.parametrize("method", ["maml", "meta_sgd"])
def test_what_was_learned_without_running_statistics_is_taken_over(method: str):
    """Version 0.1 replaced batch norms, so its models and checkpoints have none of their buffers."""
    first, second = build(method, normed()), build(method, normed())
    with torch.no_grad():
        for parameter in first.state().parameters():
            parameter.add_(1)
    state = first.state().state_dict()
    earlier = {name: value for name, value in state.items() if "running" not in name and "tracked" not in name}
    assert len(earlier) < len(state)
    second.load_state(earlier)
    assert all(torch.equal(value, state[name]) for name, value in second.state().state_dict().items())
    with pytest.raises(RuntimeError, match="Missing key"):
        second.load_state({name: value for name, value in earlier.items() if "weight" not in name})


@pytest.mark.parametrize("method", learners.names())
def test_transductive_learners_are_those_whose_answers_depend_on_what_else_is_asked(method: str):
    learner, batch = build(method, conv4("relu", norm="batch")), episodes(size=16)
    alone = learner.adapt(batch.support_x[0], batch.support_y[0]).logits(batch.query_x[0][:2])[:1]
    beside = learner.adapt(batch.support_x[0], batch.support_y[0]).logits(batch.query_x[0])[:1]
    depends = not torch.allclose(alone, beside, rtol=1e-6)
    assert depends == (learner.transductive and method != "centroid")


def test_a_method_by_gradient_sees_the_batch_through_running_statistics_too():
    assert build("maml", normed()).transductive
    network = normed()
    network.features = nn.Flatten()
    assert not build("protonet", network).transductive
