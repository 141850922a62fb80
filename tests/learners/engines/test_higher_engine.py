"""Inner Adam, which only `higher` has."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from arelu_meta import learners
from arelu_meta.errors import InputError
from arelu_meta.learners.engines import build
from tests.learners.small_problems import central_differences, episodes, gradients, own_net

OPTIONS = {"inner_lr": 0.05, "inner_steps": 3, "inner_optimizer": "adam"}


@pytest.mark.parametrize("method", ["maml", "fomaml", "anil"])
def test_inner_adam_equals_torchs_adam_on_a_copy(method):
    """higher adds epsilon to sqrt(v) before its bias correction (the end of section 2 of Kingma and Ba, and torch
    before 1.3), torch after it: the same as an epsilon divided by sqrt(1 - 0.999^t) in torch.
    """
    network, batch = own_net("arelu"), episodes(3)
    found = learners.build(method, network, engine="higher", **OPTIONS).query_logits(batch)
    for number, episode in enumerate(batch):
        clone = copy.deepcopy(network)
        moving = clone.last.parameters() if method == "anil" else clone.parameters()
        optimizer = torch.optim.Adam(moving, lr=0.05)
        for step in range(1, 4):
            optimizer.param_groups[0]["eps"] = 1e-8 / math.sqrt(1 - 0.999**step)
            clone.zero_grad()
            F.cross_entropy(clone(episode.support_x), episode.support_y).backward()
            optimizer.step()
        assert torch.allclose(found[number], clone(episode.query_x), rtol=1e-10, atol=1e-12)


def test_meta_gradient_through_adam_equals_central_differences():
    """`tanh` and a well-fed first layer: where a gradient is zero Adam's first step is not smooth."""
    network, batch = own_net("tanh"), episodes(2)
    learner = learners.build("maml", network, engine="higher", **OPTIONS)
    learner.meta_step(batch, progress=0.0)
    found = gradients(network)
    for name in ("first.weight", "last.bias"):
        parameter = network.get_parameter(name)
        slopes = central_differences(
            lambda: learner.query_loss(batch, 0.0)[0].mean().item(), parameter, step=1e-6, most=3
        )
        assert torch.allclose(found[name].view(-1)[:3], slopes, rtol=1e-3, atol=1e-6), name


@pytest.mark.parametrize("engine", ["func", "learn2learn"])
def test_other_engines_refuse_inner_adam(engine):
    learner = learners.build("maml", own_net(), engine=engine, **OPTIONS)
    with pytest.raises(
        InputError, match=f"engine '{engine}' has inner optimizer 'sgd', not 'adam'; use `engine='higher'`"
    ):
        learner.meta_step(episodes(), progress=0.0)


def test_what_the_libraries_do_not_have_is_refused():
    pytest.importorskip("learn2learn")
    network, batch = own_net(), episodes()
    rules = {
        "learned inner rates": learners.build("meta_sgd", network, inner_lr=0.1, inner_steps=1).rule,
        "no inner gradient clipping": learners.build("maml", network, inner_lr=0.1, inner_steps=1, clip_norm=1.0).rule,
    }
    for message, rule in rules.items():
        with pytest.raises(InputError, match=message):
            build("learn2learn").logits(network, rule, batch)
    with pytest.raises(InputError, match="engine 'higher' has no learned inner rates"):
        build("higher").logits(network, rules["learned inner rates"], batch)
