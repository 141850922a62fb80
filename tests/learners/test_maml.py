"""MAML, FOMAML, ANIL and BOIL against copies of the network trained by torch's own SGD."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import learners
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.gradient_learner import GradientLearner
from tests.learners.small_problems import central_differences, distance, episodes, gradients, own_net

RATE, STEPS = 0.3, 2


def learner(method: str, network: nn.Module, **options: object) -> GradientLearner:
    made = learners.build(method, network, inner_lr=RATE, inner_steps=STEPS, **options)
    assert isinstance(made, GradientLearner)
    return made


def adapted_copy(network: nn.Module, episode: Episode, steps: int, moving: set[str] | None = None) -> nn.Module:
    """An independent inner loop: a copied module and torch's own SGD."""
    clone = copy.deepcopy(network)
    chosen = [parameter for name, parameter in clone.named_parameters() if moving is None or name in moving]
    optimizer = torch.optim.SGD(chosen, lr=RATE)
    for _ in range(steps):
        clone.zero_grad()
        F.cross_entropy(clone(episode.support_x), episode.support_y).backward()
        optimizer.step()
    clone.zero_grad()
    return clone


def moving_of(method: str) -> set[str] | None:
    head, body = {"last.weight", "last.bias"}, {"first.weight", "first.bias", "act.alpha", "act.beta"}
    return {"anil": head, "boil": body}.get(method)


@pytest.mark.parametrize("method", ["maml", "fomaml", "anil", "boil"])
def test_loss_accuracy_and_logits_equal_copies_trained_by_sgd(method):
    """That ANIL's copy trains its head alone, and BOIL's all but its head, is said by names here, not by the code."""
    network, batch = own_net("arelu"), episodes(4)
    made = learner(method, network)
    outcome = made.meta_step(batch, progress=0.0)
    copies = [adapted_copy(network, episode, STEPS, moving_of(method)) for episode in batch]
    logits = torch.stack([clone(episode.query_x) for clone, episode in zip(copies, batch, strict=True)])
    losses = [F.cross_entropy(one, episode.query_y) for one, episode in zip(logits, batch, strict=True)]
    right = (logits.argmax(-1) == batch.query_y).float().mean(1)
    assert torch.allclose(made.query_logits(batch), logits, rtol=1e-10)
    assert torch.allclose(outcome.loss, torch.stack(losses).mean(), rtol=1e-10)
    assert torch.equal(outcome.accuracies, right)


@pytest.mark.parametrize("method", ["anil", "boil"])
def test_what_rests_is_not_moved(method):
    network, batch = own_net("arelu"), episodes(3)
    made = learner(method, network)
    with pytest.raises(InputError, match=r"is not known yet; call `prepare` of the learner"):
        made.rule.moves("first.weight")
    made.prepare(batch)
    adapted = made.engine.adapted_parameters(network, made.rule, batch)
    moving = moving_of(method)
    for name, parameter in network.named_parameters():
        assert torch.equal(adapted[name], parameter.expand_as(adapted[name])) == (name not in moving), name


@pytest.mark.parametrize("method", ["maml", "anil", "boil"])
def test_meta_gradient_equals_central_differences(method):
    network, batch = own_net("arelu"), episodes(3)
    made = learner(method, network)
    made.meta_step(batch, progress=0.0)
    found = gradients(network)
    for name, parameter in network.named_parameters():
        slopes = central_differences(lambda: made.query_loss(batch, 0.0)[0].mean().item(), parameter)
        assert torch.allclose(found[name].view(-1)[: len(slopes)], slopes, rtol=1e-6, atol=1e-9), name


def test_first_order_gradient_is_that_of_the_adapted_copies():
    """FOMAML: the mean over episodes of the query gradient at the adapted parameters."""
    network, batch = own_net("arelu"), episodes(4)
    learner("fomaml", network).meta_step(batch, progress=0.0)
    found = gradients(network)
    expected = {name: torch.zeros_like(parameter) for name, parameter in network.named_parameters()}
    for episode in batch:
        clone = adapted_copy(network, episode, STEPS)
        F.cross_entropy(clone(episode.query_x), episode.query_y).backward()
        for name, parameter in clone.named_parameters():
            expected[name] += parameter.grad / 4
    assert distance(found, expected) < 1e-10
    learner("maml", network).meta_step(batch, progress=0.0)
    assert distance(gradients(network), expected) > 1e-2


def test_accuracy_by_step_equals_copies():
    network, batch = own_net("arelu"), episodes(4)
    table = learner("maml", network, test_steps=4).accuracy_by_step(batch)
    for steps in range(5):
        for number, episode in enumerate(batch):
            right = adapted_copy(network, episode, steps)(episode.query_x).argmax(1) == episode.query_y
            assert table[number, steps].item() == pytest.approx(right.double().mean().item())


def test_training_and_testing_take_their_own_number_of_steps():
    network, batch = own_net(), episodes()
    made = learner("maml", network, test_steps=7)
    outcome = made.meta_step(batch, progress=0.0)
    two = torch.stack([adapted_copy(network, episode, STEPS)(episode.query_x) for episode in batch])
    seven = torch.stack([adapted_copy(network, episode, 7)(episode.query_x) for episode in batch])
    assert outcome.loss.item() == pytest.approx(F.cross_entropy(two.flatten(0, 1), batch.query_y.flatten()).item())
    assert torch.allclose(made.query_logits(batch), seven, rtol=1e-9)


@pytest.mark.parametrize("frozen", ["first.weight", "last.weight"])
@pytest.mark.parametrize("engine", learners.ALL_ENGINES)
def test_a_frozen_parameter_neither_adapts_nor_gets_a_gradient(frozen, engine):
    network, batch = own_net(), episodes()
    network.get_parameter(frozen).requires_grad_(False)
    made = learner("maml", network, engine=engine)
    made.meta_step(batch, progress=0.0)
    assert network.get_parameter(frozen).grad is None
    moving = {name for name, _ in network.named_parameters()} - {frozen}
    logits = torch.stack([adapted_copy(network, episode, STEPS, moving)(episode.query_x) for episode in batch])
    assert torch.allclose(made.query_logits(batch), logits, rtol=1e-10)


def test_no_steps_are_not_taken_for_the_usual_ones():
    batch = episodes(1)
    with pytest.raises(InputError, match="steps = 0; adapting takes at least 1"):
        learner("maml", own_net("arelu")).adapt(batch.support_x[0], batch.support_y[0], steps=0)


@pytest.mark.parametrize("engine", ["func", "higher", "learn2learn"])
def test_any_loss(engine: str):
    """Twice the loss at half the rate adapts alike, and the outer gradient is twice as large."""

    def twice(logits: Tensor, labels: Tensor) -> Tensor:
        return 2 * F.cross_entropy(logits, labels)

    network, batch = own_net("arelu"), episodes()
    plain = learners.build("maml", network, engine=engine, inner_lr=RATE, inner_steps=STEPS)
    outcome = plain.meta_step(batch, progress=0.0)
    expected = {name: 2 * gradient for name, gradient in gradients(network).items()}
    doubled = learners.build("maml", network, engine=engine, inner_lr=RATE / 2, inner_steps=STEPS, loss=twice)
    doubled.record_steps(after=0)
    assert doubled.recorded_step is None  # the function may depend on anything
    torch.testing.assert_close(doubled.meta_step(batch, progress=0.0).loss, 2 * outcome.loss)
    assert distance(gradients(network), expected) < 1e-10
    torch.testing.assert_close(doubled.query_logits(batch), plain.query_logits(batch))
