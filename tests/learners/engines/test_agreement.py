"""Three engines, one answer: the same meta-gradient in float64 for every activation, and the same training curve."""

import copy
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import activations, learners
from arelu_meta.data.episodes import Episode
from arelu_meta.learners.engines import Engine, build
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.gradient_learner import GradientLearner
from tests.learners.small_problems import (
    central_differences,
    conv4,
    distance,
    episodes,
    gradients,
    mnist_conv,
    own_net,
    real_targets,
)

METHODS = ["maml", "fomaml", "anil", "boil"]
TOLERANCE = 1e-10


def engines(method: str) -> dict[str, Engine]:
    """All engines of a method that are installed, `func` both ways."""
    installed = [name for name in learners.entry(method).engines if name != "learn2learn" or find_spec(name)]
    others = {name: build(name) for name in installed if name != "func"}
    return {"vectorised": FuncEngine(vectorise=True), "looped": FuncEngine(vectorise=False), **others}


def learner(method: str, network: nn.Module, engine: Engine, **options: object) -> GradientLearner:
    made = learners.build(method, network, **{"inner_lr": 0.05, "inner_steps": 2, **options})
    assert isinstance(made, GradientLearner)
    made.engine = engine
    return made


def meta_gradients(method: str, network: nn.Module, batch: Episode, **options: object) -> dict[str, dict[str, Tensor]]:
    network.eval()  # RReLU draws its slopes in training mode, each engine in an order of its own
    found = {}
    for name, engine in engines(method).items():
        learner(method, network, engine, **options).meta_step(batch, progress=0.0)
        found[name] = gradients(network)
    return found


def assert_agreement(found: dict[str, dict[str, Tensor]]) -> None:
    reference = found.pop("looped")
    assert max(float(value.abs().max()) for value in reference.values()) > 1e-6
    assert {name: distance(gradient, reference) for name, gradient in found.items()} == pytest.approx(
        dict.fromkeys(found, 0.0), abs=TOLERANCE
    )


@pytest.mark.parametrize("activation", activations.names())
@pytest.mark.parametrize("method", METHODS)
def test_every_activation_in_a_small_network(method, activation):
    assert_agreement(meta_gradients(method, own_net(activation), episodes()))


@pytest.mark.parametrize("adapt", [*learners.PARTS, "head+activation"])
def test_every_part_that_may_adapt(adapt):
    """Looped, vectorised, recorded, `higher` and `learn2learn`: one meta-gradient; of other parts it is another."""
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(16, 6), nn.GroupNorm(2, 6), activations.build("arelu"), nn.Linear(6, 3)
    network, batch = nn.Sequential(*layers).double().eval(), episodes()
    found = meta_gradients("maml", network, batch, adapt=adapt, inner_lr=0.3)
    everything = meta_gradients("maml", network, batch, inner_lr=0.3)["looped"]
    assert (distance(everything, found["looped"]) < 1e-3) == (adapt == "all")
    recorded = learner("maml", network, FuncEngine(), adapt=adapt, inner_lr=0.3)
    recorded.record_steps(after=0)
    for _ in range(3):
        recorded.meta_step(batch, progress=0.0)
        found["recorded"] = gradients(network)
    assert recorded.recording_seconds > 0
    assert_agreement(found)


@pytest.mark.parametrize("activation", activations.names())
def test_every_activation_in_conv4_with_batch_norm(activation):
    assert_agreement(meta_gradients("maml", conv4(activation), episodes(size=16), inner_steps=1))


@pytest.mark.parametrize("norm", ["batch", "batch_support", "group", "none"])
@pytest.mark.parametrize("method", METHODS)
def test_every_norm_of_conv4(method, norm):
    assert_agreement(meta_gradients(method, conv4("arelu", norm=norm), episodes(size=16), inner_steps=1))


@pytest.mark.parametrize("method", METHODS)
def test_mnist_conv(method):
    assert_agreement(meta_gradients(method, mnist_conv("prelu"), episodes(size=28), inner_steps=1))


def own_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    return F.huber_loss(predictions, targets, delta=0.5)


@pytest.mark.parametrize("loss", [F.mse_loss, own_loss])
@pytest.mark.parametrize("method", [*METHODS, "joint", "meta_sgd", "mamlpp", "reptile"])
def test_real_targets(method, loss):
    """Regression, by a loss that is computed for all episodes at once and by one of a user's own."""
    batch = real_targets(episodes(3))
    assert_agreement(meta_gradients(method, own_net("arelu"), batch, loss=loss, inner_lr=0.2))


@pytest.mark.parametrize("engine", ["vectorised", "looped", "higher", "learn2learn"])
def test_the_agreed_gradient_of_a_regression_is_the_right_one(engine):
    """Against central differences of the mean squared error, computed here by hand: two steps, then the queries."""
    network, batch, rate = own_net("tanh").eval(), real_targets(episodes()), 0.2
    learner("maml", network, engines("maml")[engine], inner_lr=rate, loss=F.mse_loss).meta_step(batch, progress=0.0)
    found = gradients(network)

    def loss() -> float:
        total = 0.0
        for episode in batch:
            adapted = copy.deepcopy(network)
            for _ in range(2):
                error = (adapted(episode.support_x) - episode.support_y).square().mean()
                slopes = torch.autograd.grad(error, list(adapted.parameters()))
                with torch.no_grad():
                    for parameter, slope in zip(adapted.parameters(), slopes, strict=True):
                        parameter -= rate * slope
            total += (adapted(episode.query_x) - episode.query_y).square().mean().item()
        return total / len(batch)

    for name, parameter in network.named_parameters():
        slopes = central_differences(loss, parameter, most=2)
        assert torch.allclose(found[name].view(-1)[:2], slopes, rtol=1e-5, atol=1e-9), name


@pytest.mark.parametrize("method", METHODS)
def test_clipped_inner_gradients(method):
    """Engines that clip agree, and the clip is felt: without it the meta-gradient is another."""
    if "learn2learn" in learners.entry(method).engines:
        return_engines = ["vectorised", "looped", "higher"]
    else:
        return_engines = list(engines(method))
    network, batch, found = own_net("arelu").eval(), episodes(), {}
    for name in return_engines:
        learner(method, network, engines(method)[name], clip_norm=0.1, inner_lr=0.5).meta_step(batch, progress=0.0)
        found[name] = gradients(network)
    learner(method, network, FuncEngine(), inner_lr=0.5).meta_step(batch, progress=0.0)
    assert distance(gradients(network), found["looped"]) > 1e-3
    assert_agreement(found)


@pytest.mark.parametrize("engine", ["vectorised", "looped", "higher", "learn2learn"])
def test_the_agreed_gradient_is_the_right_one(engine):
    """Against central differences of the loss itself: agreement alone could be shared error."""
    network, batch = conv4("tanh", norm="batch").eval(), episodes(size=16)
    made = learner("maml", network, engines("maml")[engine], inner_lr=0.2)
    made.meta_step(batch, progress=0.0)
    found = gradients(network)
    looped = learner("maml", network, FuncEngine(vectorise=False), inner_lr=0.2)

    def loss() -> float:
        return looped.query_loss(batch, 0.0)[0].mean().item()

    for name, parameter in network.named_parameters():
        if name in ("blocks.0.0.weight", "blocks.2.1.weight", "head.weight"):
            slopes = central_differences(loss, parameter, most=2)
            assert torch.allclose(found[name].view(-1)[:2], slopes, rtol=1e-5, atol=1e-9), name


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_logits_of_all_engines(every_step, tracked):
    """(episodes, points, queries, ways), with and without gradient tracking."""
    network, batch = own_net("arelu").eval(), episodes(3)
    rule = learners.build("maml", network, inner_lr=0.05, inner_steps=2).rule
    with torch.set_grad_enabled(tracked):
        found = {
            name: engine.logits(network, rule, batch, every_step=every_step) for name, engine in engines("maml").items()
        }
    for name, logits in found.items():
        assert logits.shape == (3, 3 if every_step else 1, 6, 3), name
        assert torch.allclose(logits, found["looped"], rtol=1e-12, atol=1e-13), name


@pytest.mark.parametrize("method", ["maml", "fomaml", "anil"])
def test_the_same_training_curve(method):
    """Twenty outer steps of Adam, float64: rounding differs, the curve does not."""
    curves, ends = {}, {}
    for name, engine in engines(method).items():
        network = own_net("arelu")
        made = learner(method, network, engine)
        optimizer = torch.optim.Adam(made.parameter_groups(0.02))
        losses = []
        for seed in range(20):
            optimizer.zero_grad()
            losses.append(made.meta_step(episodes(seed=seed), progress=seed / 20).loss.item())
            optimizer.step()
        curves[name], ends[name] = losses, {key: value.detach() for key, value in network.named_parameters()}
    assert min(curves["looped"][10:]) < 0.8 * curves["looped"][0]
    for name, losses in curves.items():
        assert losses == pytest.approx(curves["looped"], rel=1e-8), name
        assert distance(ends[name], ends["looped"]) < 1e-8, name
