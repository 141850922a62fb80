"""Meta-SGD and MAML++: the gradient of the learned rates, the multi-step loss, and the order that is annealed."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from arelu_meta import learners
from arelu_meta.learners.learned_rates import MamlPlusPlus, step_weights
from tests.learners.small_problems import central_differences, distance, episodes, gradients, own_net

STEPS = 3


@pytest.mark.parametrize("method", ["meta_sgd", "mamlpp"])
@pytest.mark.parametrize("progress", [0.3, 0.8])
def test_gradient_of_rates_and_weights_equals_central_differences(method, progress):
    """From a quarter of training on MAML++ is of second order, so that differences of its loss are its gradient."""
    network, batch = own_net("arelu"), episodes(3)
    learner = learners.build(method, network, inner_lr=0.2, inner_steps=STEPS)
    with torch.no_grad():  # rates that differ, as after some training
        for number, rates in enumerate(learner.rates.parameters()):
            rates += 0.05 * torch.randn(rates.shape, generator=torch.Generator().manual_seed(number)).double()
    learner.meta_step(batch, progress=progress)
    found = gradients(learner.state())
    for name, parameter in learner.state().named_parameters():
        slopes = central_differences(lambda: learner.query_loss(batch, progress)[0].mean().item(), parameter, most=3)
        assert torch.allclose(found[name].view(-1)[: len(slopes)], slopes, rtol=1e-6, atol=1e-9), name
        assert found[name].abs().max() > 1e-6, name


def test_rates_start_at_inner_lr_one_per_weight_or_one_per_layer_and_step():
    network = own_net("arelu")
    meta_sgd = learners.build("meta_sgd", network, inner_lr=0.2, inner_steps=STEPS)
    mamlpp = learners.build("mamlpp", network, inner_lr=0.2, inner_steps=STEPS)
    for name, weight in network.named_parameters():
        one, other = meta_sgd.rates.by_name()[name], mamlpp.rates.by_name()[name]
        assert one.shape == (1, *weight.shape)
        assert other.shape == (STEPS,)
        assert (one == 0.2).all()
        assert (other == 0.2).all()
        assert one.dtype == weight.dtype


def test_with_its_starting_rates_meta_sgd_is_maml():
    batch = episodes(3)
    found = []
    for method in ("maml", "meta_sgd"):
        network = own_net("arelu")
        learners.build(method, network, inner_lr=0.2, inner_steps=STEPS).meta_step(batch, progress=0.0)
        found.append(gradients(network))
    assert distance(*found) < 1e-12


def test_step_weights_by_hand():
    """Equal at the start (1/4 each); halfway to 0.5 the early ones are halved, 1/8 each, and the last has the rest."""
    assert step_weights(4, 0.0).tolist() == [0.25] * 4
    assert step_weights(4, 0.25).tolist() == [0.125, 0.125, 0.125, 0.625]
    for progress in (0.5, 0.75, 1.0):
        assert step_weights(4, progress).tolist() == [0.0, 0.0, 0.0, 1.0]
    assert step_weights(1, 0.1).tolist() == [1.0]
    for progress in torch.linspace(0, 1, 11).tolist():
        assert step_weights(5, progress).sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.9])
def test_the_loss_is_the_weighted_sum_over_steps(progress):
    network, batch = own_net(), episodes(2)
    learner = learners.build("mamlpp", network, inner_lr=0.2, inner_steps=STEPS)
    outcome = learner.meta_step(batch, progress=progress)
    every = learner.engine.logits(network, learner.rule, batch, every_step=True)
    losses = [F.cross_entropy(every[:, step].flatten(0, 1), batch.query_y.flatten()) for step in range(1, STEPS + 1)]
    early = max(0.0, 1 - progress / 0.5) / STEPS
    expected = early * losses[0] + early * losses[1] + (1 - 2 * early) * losses[2]
    assert outcome.loss.item() == pytest.approx(expected.item(), rel=1e-6)  # the weights are float32


def test_second_derivatives_come_on_at_a_quarter_of_training():
    """Just before 0.25 the weights get the gradient of first order, from 0.25 on that of second."""
    network, batch = own_net("arelu"), episodes(3)
    learner = learners.build("mamlpp", network, inner_lr=0.2, inner_steps=1)  # one step: the loss stays the same
    assert isinstance(learner, MamlPlusPlus)
    found = {}
    for progress in (0.0, 0.2499, 0.25, 0.9):
        learner.meta_step(batch, progress=progress)
        found[progress] = gradients(network)
    expected = {}
    for method in ("fomaml", "maml"):
        learners.build(method, network, inner_lr=0.2, inner_steps=1).meta_step(batch, progress=0.0)
        expected[method] = gradients(network)
    assert distance(expected["fomaml"], expected["maml"]) > 1e-2
    assert max(distance(found[progress], expected["fomaml"]) for progress in (0.0, 0.2499)) < 1e-7
    assert max(distance(found[progress], expected["maml"]) for progress in (0.25, 0.9)) < 1e-7


def test_more_test_steps_than_rates_go_on_with_the_last():
    network, batch = own_net(), episodes(2)
    learner = learners.build("mamlpp", network, inner_lr=0.2, inner_steps=2, test_steps=4)
    with torch.no_grad():
        for rates in learner.rates.parameters():
            rates.copy_(torch.tensor([0.1, 0.3]))
    spelled_out = {
        name: torch.tensor([0.1, 0.3, 0.3, 0.3], dtype=torch.float64) for name, _ in network.named_parameters()
    }
    rule = replace(learner.rule, lr=spelled_out, steps=4)
    assert torch.allclose(learner.query_logits(batch), learner.engine.logits(network, rule, batch)[:, -1], rtol=1e-6)
