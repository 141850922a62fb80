"""A learner that records and replays its steps ends up with the same bits as one that does not."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from arelu_meta import activations, learners
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.kernels.recorded_step import RECORDINGS
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.inner_loop import InnerRule
from arelu_meta.learners.learner import Learner
from arelu_meta.training.meta import make_optimizer
from tests.learners.small_problems import build, conv4, episodes, mnist_conv, own_net, real_targets

RECORDED = ["maml", "fomaml", "anil", "boil", "meta_sgd"]
RANDOM = {"rrelu"}


def trained(learner: Learner, batches: list[Episode]) -> list[Tensor]:
    """All that is learned, and what every step gave."""
    torch.manual_seed(0)
    optimizer, outcomes = make_optimizer(learner, 0.01), []
    for number, batch in enumerate(batches):
        optimizer.zero_grad()
        outcomes.append(learner.meta_step(batch, progress=number / len(batches)))
        optimizer.step()
    return [
        *learner.state().parameters(),
        *(part for outcome in outcomes for part in (outcome.loss, outcome.accuracies)),
    ]


def check_the_same(method: str, network: Callable[[], nn.Module], batches: list[Episode], **options: object) -> Learner:
    plain, recorded = (build(method, network(), **options) for _ in range(2))
    recorded.record_steps(after=1)
    for one, other in zip(trained(recorded, batches), trained(plain, batches), strict=True):
        assert torch.equal(one, other)
    return recorded


def batches_of(*seeds: int, count: int = 2, size: int = 16) -> list[Episode]:
    return [episodes(count, size=size, dtype=torch.float32, seed=seed) for seed in seeds]


def recordings(learner: Learner) -> int:
    step = getattr(learner, "recorded_step", None)
    return 0 if step is None else len(step._recordings)


@pytest.mark.parametrize("method", RECORDED)
@pytest.mark.parametrize(
    "options",
    [{}, {"clip_norm": 0.5}, {"chunk": 1}, {"episode_clip": 0.5}],
    ids=["plain", "clipped", "chunks", "episodes clipped"],
)
def test_the_same_bits(method: str, options: dict[str, object]):
    learner = check_the_same(method, lambda: conv4("arelu", torch.float32), batches_of(0, 1, 2, 3), **options)
    assert recordings(learner) == 1
    assert learner.recording_seconds > 0


@pytest.mark.parametrize("method", ["maml", "fomaml"])
def test_the_same_bits_of_a_regression(method: str):
    batches = [real_targets(batch) for batch in batches_of(0, 1, 2)]
    learner = check_the_same(method, lambda: conv4("arelu", torch.float32), batches, loss=F.mse_loss)
    assert recordings(learner) == 1


def test_real_targets_without_an_axis_of_outputs_are_refused():
    """(N, 1) less (N,) would be (N, N), and its mean a number like any other."""
    batch = real_targets(episodes())
    flat = Episode(batch.support_x, batch.support_y[..., 0], batch.query_x, batch.query_y[..., 0])
    with pytest.raises(InputError, match=r"real targets are \(2, 6\); give \(episodes, N, d\)"):
        build("maml", own_net(), loss=F.mse_loss).meta_step(flat, progress=0.0)


QUICK = {"relu", "maxout", "rrelu", "pau", "arelu", "gain_matched"}


@pytest.mark.parametrize(
    "activation",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in activations.names()],
)
def test_the_same_bits_for_every_activation(activation: str):
    batches = batches_of(0, 1, 2, size=28)
    learner = check_the_same(
        "maml", lambda: mnist_conv(activation, torch.float32), batches, inner_lr=1e-4
    )  # squares grow
    assert recordings(learner) == (activation not in RANDOM)


TRAINED = {name for name in learners.names() if learners.entry(name).needs_training}


@pytest.mark.parametrize("method", sorted(TRAINED - set(RECORDED)))
def test_steps_that_are_not_alike_are_not_recorded(method: str):
    learner = check_the_same(method, lambda: conv4("arelu", torch.float32), batches_of(0, 1, 2))
    assert recordings(learner) == 0


def test_recorded_when_it_pays_and_once():
    learner = learners.build("maml", conv4("relu", torch.float32), inner_lr=0.1, inner_steps=1)
    learner.record_steps(after=1)
    counts = []
    for batch in batches_of(0, 1, 2, 3):
        learner.meta_step(batch, progress=0.0)
        counts.append(recordings(learner))
    assert counts == [0, 1, 1, 1]


def test_gradients_are_added_to_those_there_are_and_times_the_share():
    learner = learners.build("maml", conv4("relu", torch.float32), inner_lr=0.1, inner_steps=1)
    (batch,) = batches_of(0)
    learner.meta_step(batch, progress=0.0, share=0.5)
    once = [parameter.grad.clone() for parameter in learner.network.parameters()]
    learner.record_steps(after=1)
    learner.network.zero_grad()
    for _ in range(4):
        learner.meta_step(batch, progress=0.0, share=0.5)
    assert recordings(learner) == 1
    for parameter, gradient in zip(learner.network.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 4 * gradient)


def test_another_shape_mode_or_frozen_layer_is_recorded_anew():
    def changing(learner: Learner, outcomes: list[Tensor]) -> None:
        for size, training, frozen in ((2, True, False), (3, True, False), (3, False, False), (3, False, True)):
            learner.network.train(training)
            for name, parameter in learner.network.named_parameters():
                parameter.requires_grad_(not (frozen and name.startswith("head")))
            for seed in range(3):
                learner.network.zero_grad()
                learner.meta_step(batches_of(seed, count=size)[0], progress=0.0)
                outcomes += [p.grad.clone() for p in learner.network.parameters() if p.grad is not None]

    plain, recorded = (
        learners.build("maml", conv4("arelu", torch.float32), inner_lr=0.1, inner_steps=1) for _ in range(2)
    )
    recorded.record_steps(after=1)
    theirs: list[Tensor] = []
    ours: list[Tensor] = []
    changing(plain, theirs)
    changing(recorded, ours)
    assert recordings(recorded) == 4
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_networks_of_others_are_not_recorded():
    """A forward pass of a user's own may depend on what no operation shows, such as the number of calls."""
    learner = check_the_same("maml", lambda: own_net("arelu", torch.float32), batches_of(0, 1, 2, size=4))
    assert recordings(learner) == 0


class Slowly(GradientLearner):
    """A loss that changes as training progresses."""

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        loss, logits = super().query_loss(episodes, progress)
        return loss * (1 + progress), logits


def test_a_loss_of_ones_own_is_not_recorded():
    engine, rule = learners.engines.build("func"), InnerRule(lr=0.1, steps=1)
    learner = Slowly(conv4("relu", torch.float32), engine=engine, rule=rule)
    learner.record_steps(after=0)
    assert learner.recorded_step is None


def leaky(slope: float = 0.1) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.LeakyReLU(slope), nn.Linear(8, 3))


def replace_twice(learner: GradientLearner) -> None:
    """The second takes the place in memory that the first, or the one before it, had."""
    for slope in (0.5, 0.9):
        learner.network[2] = nn.LeakyReLU(slope)


CHANGES: dict[str, Callable[[GradientLearner], object]] = {
    "a note that cannot be hashed": lambda learner: setattr(learner.network[2], "note", ([1],)),
    "a setting": lambda learner: setattr(learner.network[2], "negative_slope", 0.9),
    "a module": replace_twice,
    "the network": lambda learner: setattr(learner, "network", leaky(0.9)),
    "a method": lambda learner: setattr(learner.network[2], "forward", torch.tanh),
    "a parameter": lambda learner: setattr(learner.network[1], "bias", nn.Parameter(torch.ones(8))),
    "a number of a parameter": lambda learner: nn.init.constant_(learner.network[1].bias, 2.0),
    "the type": lambda learner: learner.network.to(torch.float64),
    "the rule": lambda learner: setattr(learner, "rule", InnerRule(lr=0.5, steps=1)),
    "a hook on a parameter": lambda learner: learner.network[1].bias.register_hook(lambda gradient: gradient / 2),
}


def replace_buffers(learner: GradientLearner) -> None:
    for module in learner.network.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, buffer * 3)


def widen_norms(learner: GradientLearner) -> None:
    for module in learner.network.modules():
        if hasattr(module, "eps"):
            module.eps = 1.0


@pytest.mark.parametrize("change", [replace_buffers, widen_norms])
def test_what_changes_in_a_backbone_after_the_recording_is_noticed(change: Callable[[GradientLearner], None]):
    check_change_is_noticed(change, lambda: conv4("arelu_frozen", torch.float32), size=16)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_after_the_recording_is_noticed(change: Callable[[GradientLearner], object]):
    check_change_is_noticed(change, leaky, size=4)


def check_change_is_noticed(
    change: Callable[[GradientLearner], object], network: Callable[[], nn.Module], size: int
) -> None:
    found = []
    for record in (False, True):
        learner = learners.build("maml", network(), inner_lr=0.1, inner_steps=1)
        if record:
            learner.record_steps(after=0)
        for batch in batches_of(0, 1, size=size):
            learner.meta_step(batch, progress=0.0)
        assert recordings(learner) == record
        change(learner)
        learner.network.zero_grad()
        last = episodes(size=size, dtype=next(learner.network.parameters()).dtype, seed=2)
        found.append([learner.meta_step(last, progress=0.0).loss, *(p.grad for p in learner.network.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_what_asks_for_gradients_of_images_gets_them():
    learner = learners.build("maml", leaky(), inner_lr=0.1, inner_steps=1)
    learner.record_steps(after=0)
    (batch,) = batches_of(0, size=4)
    learner.meta_step(batch, progress=0.0)
    batch.query_x.requires_grad_()
    learner.meta_step(batch, progress=0.0)
    assert batch.query_x.grad is not None
    with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"):
        learner.meta_step(batches_of(1, size=4)[0], progress=0.0)


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Counting(nn.Linear):
    """A forward pass that depends on the number of calls."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * self.calls


def test_a_parametrized_module_of_others_is_theirs():
    network = nn.Sequential(nn.Flatten(), Counting(16, 3))
    parametrize.register_parametrization(network[1], "weight", Doubled())
    learner = learners.build("maml", network, inner_lr=0.1, inner_steps=1)
    learner.record_steps(after=0)
    learner.meta_step(batches_of(0, size=4)[0], progress=0.0)
    assert recordings(learner) == 0


def test_few_recordings_are_kept():
    learner = learners.build("maml", leaky(), inner_lr=0.1, inner_steps=1)
    learner.record_steps(after=0)
    for count in range(1, RECORDINGS + 3):
        learner.meta_step(batches_of(0, count=count, size=4)[0], progress=0.0)
    assert recordings(learner) == 2


def test_hooks_are_called_every_time():
    network = conv4("relu", torch.float32)
    learner = learners.build("maml", network, inner_lr=0.1, inner_steps=1)
    learner.record_steps(after=1)
    for batch in batches_of(0, 1):
        learner.meta_step(batch, progress=0.0)
    assert recordings(learner) == 1
    calls: list[int] = []
    handle = network.register_forward_hook(lambda *_: calls.append(1))
    learner.prepare(batches_of(2)[0])  # a network with hooks is checked, on a copy that calls them too
    calls.clear()
    learner.meta_step(batches_of(2)[0], progress=0.0)
    assert len(calls) == 2  # on the support, and on the queries
    handle.remove()


def test_on_the_meta_device():
    with torch.device("meta"):
        network = conv4("arelu", torch.float32)
    learner = learners.build("maml", network, inner_lr=0.1, inner_steps=1)
    learner.record_steps(after=1)
    (batch,) = batches_of(0)
    for _ in range(3):
        outcome = learner.meta_step(Episode(*(tensor.to("meta") for tensor in batch.tensors())), progress=0.0)
    assert recordings(learner) == 1
    assert outcome.loss.is_meta


@pytest.mark.parametrize("engine", ["higher", "learn2learn"])
def test_other_engines_go_their_own_way(engine: str):
    learner = learners.build("maml", conv4("relu", torch.float32), engine=engine, inner_lr=0.1, inner_steps=1)
    learner.record_steps(after=1)
    assert learner.recorded_step is None
