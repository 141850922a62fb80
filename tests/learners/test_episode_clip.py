"""Each episode's gradient is bounded by itself: by hand, against episodes taken alone, in trainings that collapsed."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import Tensor, nn

from arelu_meta import learners
from arelu_meta.data.episodes import Episode, EpisodeSampler
from arelu_meta.errors import InputError
from arelu_meta.kinds.command import read_flags
from arelu_meta.kinds.few_shot.settings import build_learner
from arelu_meta.kinds.images import load_split
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.episode_clip import clipped_sum
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.learner import Learner, StepOutcome
from arelu_meta.learners.prototypes import ProtoNet
from arelu_meta.seeding import generator, global_stream
from arelu_meta.training.collapse import collapsed
from arelu_meta.training.meta import make_optimizer, meta_train
from tests.learners.small_problems import build, conv4, distance, episodes, gradients, mnist_conv, own_net

NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "own": (lambda: own_net("arelu"), 4),
    "mnist_conv": (lambda: mnist_conv("arelu"), 28),
    "conv4": (lambda: conv4("arelu", norm="batch_support"), 16),
}
BY_GRADIENT = [entry.name for entry in learners.entries() if entry.by_gradient]
PAIRS = [(method, engine) for method in BY_GRADIENT for engine in learners.entry(method).engines]


def half_square(logits: Tensor, _labels: Tensor) -> Tensor:
    return logits.square().mean() / 2


def two_episodes() -> Episode:
    """One image of one pixel each: support 2 and query 5, support 10 and query 1."""
    pixels = torch.tensor([[2.0, 5.0], [10.0, 1.0]], dtype=torch.float64).view(2, 2, 1, 1, 1, 1)
    labels = torch.zeros(2, 1, dtype=torch.long)
    return Episode(pixels[:, 0], labels, pixels[:, 1], labels)


@pytest.mark.parametrize("engine", ["func", "higher", "learn2learn"])
@pytest.mark.parametrize("chunk", [0, 1])
@pytest.mark.parametrize(
    ("method", "bound", "expected"),
    [
        ("maml", 1000.0, (27 + 243) / 2),
        ("maml", 30.0, (27 + 30) / 2),
        ("maml", 10.0, (10 + 10) / 2),
        ("fomaml", 30.0, (30 - 27) / 2),
    ],
)
def test_two_episodes_by_hand(method, engine, chunk, bound, expected):
    """f(w) = (x w)^2 / 2, so one step of 0.1 gives w' = (1 - 0.1 x^2) w; outer g = (z w')^2 / 2, at w = 3.

    support 2, query 5:  w' = 0.6 w;  second order 25 * 0.6^2 * 3 = 27, first order 25 * 0.6 * 3 = 45
    support 10, query 1: w' = -9 w;   second order 9^2 * 3 = 243,       first order -9 * 3 = -27
    """
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False)).double()
    nn.init.constant_(network[1].weight, 3.0)
    options = {"inner_lr": 0.1, "inner_steps": 1, "loss": half_square, "chunk": chunk, "episode_clip": bound}
    outcome = learners.build(method, network, engine=engine, **options).meta_step(two_episodes(), progress=0.0)
    assert network[1].weight.grad.item() == pytest.approx(expected, rel=1e-12)
    assert outcome.norms.tolist() == pytest.approx([27, 243] if method == "maml" else [45, 27], rel=1e-12)


def alone_and_clipped(learner: Learner, batch: Episode, bound: float) -> tuple[dict[str, Tensor], list[float]]:
    """Each episode's gradient from a step of its own, scaled down by torch's vector norm, and their mean."""
    norms, mean = [], {name: torch.zeros_like(value) for name, value in learner.state().named_parameters()}
    for episode in batch.chunks(1):
        learner.meta_step(episode, progress=0.3)
        own = gradients(learner.state())
        norms.append(float(torch.linalg.vector_norm(torch.cat([value.flatten() for value in own.values()]))))
        for name, value in own.items():
            mean[name] += value * min(1.0, bound / norms[-1]) / len(batch)
    return mean, norms


def check(learner: Learner, batch: Episode) -> None:
    """Bounded between the norms of its episodes, a batch gives what the episodes give when taken alone."""
    _, norms = alone_and_clipped(learner, batch, 1.0)
    bound = fmean(sorted(norms)[1:3])
    expected, _ = alone_and_clipped(learner, batch, bound)
    learner.episode_clip = bound
    outcome = learner.meta_step(batch, progress=0.3)
    assert distance(gradients(learner.state()), expected) < 1e-10
    assert outcome.norms.tolist() == pytest.approx(norms, rel=1e-10)
    assert sum(norm > bound for norm in norms) == len(norms) - 2


@pytest.mark.parametrize("chunk", [0, 2])
@pytest.mark.parametrize(("method", "engine"), PAIRS)
def test_every_method_on_every_engine(method, engine, chunk):
    check(build(method, own_net("arelu"), engine=engine, chunk=chunk), episodes(5))


@pytest.mark.parametrize("network", ["mnist_conv", "conv4"])
@pytest.mark.parametrize("method", ["maml", "meta_sgd", "mamlpp"])
def test_networks_with_kernels_of_their_own(method, network):
    make, size = NETWORKS[network]
    check(build(method, make(), inner_lr=0.02), episodes(4, size=size))


@pytest.mark.parametrize("engine", ["higher", "learn2learn"])
def test_mnist_conv_on_the_other_engines(engine):
    check(build("maml", mnist_conv("arelu"), engine=engine, inner_lr=0.02), episodes(4, size=28))


def test_looped_by_torch_func():
    learner = build("maml", own_net("arelu"))
    learner.engine = FuncEngine(vectorise=False)
    check(learner, episodes(4))


class Decayed(GradientLearner):
    """A loss of one's own, with a term that does not pass through the inner loop."""

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        losses, logits = super().query_loss(episodes, progress)
        return losses + sum(parameter.square().sum() for parameter in self.network.parameters()), logits


def test_a_loss_of_ones_own_uses_the_network_as_it_likes():
    plain = build("maml", own_net("arelu"))
    check(Decayed(plain.network, engine=plain.engine, rule=plain.rule), episodes(4))


def test_what_is_frozen_has_no_part_in_the_norm():
    network = own_net("arelu")
    network.first.weight.requires_grad_(False)
    check(build("maml", network), episodes(4))
    assert network.first.weight.grad is None


def test_an_episode_without_a_gradient_is_left_as_it_is():
    (total,), norms = clipped_sum([torch.tensor([[0.0, 0.0], [3.0, 4.0]])], 1.0)
    assert total.tolist() == pytest.approx([0.6, 0.8])
    assert norms.tolist() == [0.0, 5.0]


@pytest.mark.parametrize("value", [1e30, float("inf"), float("nan")])
def test_an_overflowing_gradient_counts_nothing(value):
    """The square of 1e30 is infinite in float32, infinity times zero not a number: the other episode stays."""
    totals, norms = clipped_sum([torch.tensor([[value], [0.3]]), None, torch.tensor([1.0, 0.4])], 1.0, weight=0.5)
    assert totals[1] is None
    assert [totals[0].item(), totals[2].item()] == pytest.approx([0.15, 0.2])
    assert not norms[0].isfinite()
    assert norms[1].item() == pytest.approx(0.5)


class OwnStep(ProtoNet):
    """A method of one's own that takes its outer step as it likes."""

    clips_episodes = Learner.clips_episodes

    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        return super().meta_step(episodes, progress=progress, share=share)


@pytest.mark.parametrize("method", ["protonet", OwnStep])
def test_methods_that_cannot_say_so(method):
    with pytest.raises(InputError, match="does not bound the gradients of single episodes; leave `episode_clip` out"):
        learners.build(method, own_net(), episode_clip=1.0)


@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan")])
def test_a_bound_is_above_zero(bound):
    with pytest.raises(InputError, match=f"episode_clip = {bound}; a bound on a norm is above 0"):
        build("maml", own_net(), episode_clip=bound)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "noise"), [(0, 0.0), (4, 0.0), (4, 1e-7), (4, 1e-6)])
def test_trainings_that_collapsed_train(published_data: Path, seed: int, noise: float):
    """Seeds 0 and 4 collapsed without a bound; rounding, or noise of an ulp in the weights, decides whether they do."""
    flags = f"--task mnist --protocol paper --activation arelu --seed {seed} --episode-clip 25 --iterations 60"
    spec, _ = read_flags("few_shot", flags.split())
    images = load_split(spec.data, root=str(published_data), shape=spec.fit).train
    sampler = EpisodeSampler(images, ways=5, shots=1, queries=1)
    learner = build_learner(spec, images.channels, images.image_size)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.mul_(1 + noise * torch.randn(parameter.shape, generator=random))
    learner.record_steps()
    stream = generator(seed, "episodes/train")
    pool = sampler.draw(spec.evaluation.task_pool, stream)

    def next_episodes() -> Episode:
        return sampler.episodes(pool[torch.randint(len(pool), (spec.training.meta_batch,), generator=stream)])

    with global_stream(seed, "training"):
        optimizer = make_optimizer(learner, spec.training.outer_lr)
        steps = list(meta_train(learner, optimizer, next_episodes, iterations=spec.training.iterations))
    accuracies = [step.accuracy for step in steps]
    assert not collapsed(accuracies, 0.2, window=5)
    assert fmean(accuracies[-10:]) > 0.6
    assert max(step.gradient_norm for step in steps) <= 25
