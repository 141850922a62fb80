"""The loops: what they report, what ends them, what they leave alone, what they hold in memory."""

import copy
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import nn

from arelu_meta import data, learners
from arelu_meta.data.episodes import Episode, EpisodeSampler
from arelu_meta.errors import DivergedError
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.learner import Learner, StepOutcome
from arelu_meta.training.forward import autocast
from arelu_meta.training.meta import clip_gradients, evaluate, make_optimizer, meta_train, validate
from tests.learners.small_problems import build, episodes, own_net

PROJECT = Path(__file__).resolve().parents[2]


class Quadratic:
    """A learner whose loss is (w - 1)^2 / 2, whatever the episodes; it notes the mode the network is in."""

    outer_optimizer: Literal["adam", "sgd"] = "adam"
    episode_clip = None

    def __init__(self, start: float) -> None:
        self.network = nn.Linear(1, 1, bias=False).double()
        nn.init.constant_(self.network.weight, start)
        self.modes: list[bool] = []
        self.progress: list[float] = []

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        return [{"params": list(self.network.parameters()), "lr": lr}]

    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        self.modes.append(self.network.training)
        self.progress.append(progress)
        loss = ((self.network.weight - 1) ** 2 / 2).sum()
        (loss * share).backward()
        return StepOutcome(loss.detach(), torch.linspace(0.25, 0.75, len(episodes)))


def train(learner: Any, *, lr: float = 0.1, **options: Any) -> list[Any]:
    return list(meta_train(learner, make_optimizer(learner, lr), episodes, **options))


def test_iterations_report_the_loss_before_the_update():
    """At w = 3 the loss is 2; Adam's first step is lr against the sign of the gradient, so w = 2.9, loss 1.9^2 / 2."""
    learner = Quadratic(3.0)
    steps = train(learner, iterations=2)
    assert [step.number for step in steps] == [1, 2]
    assert [step.loss for step in steps] == pytest.approx([2.0, 1.9**2 / 2], rel=1e-6)
    assert [step.accuracy for step in steps] == [0.5, 0.5]
    assert learner.modes == [True, True]


def test_plain_sgd_where_the_learner_wants_it():
    """w = 3, gradient 2: a step of 0.1 gives 2.8, loss 1.8^2 / 2."""
    learner = Quadratic(3.0)
    learner.outer_optimizer = "sgd"
    assert [step.loss for step in train(learner, iterations=2)] == pytest.approx([2.0, 1.8**2 / 2])


def test_progress_runs_from_zero_to_one_and_a_resumed_run_goes_on():
    learner = Quadratic(3.0)
    assert [step.number for step in train(learner, iterations=4, done=1)] == [2, 3, 4]
    assert learner.progress == [0.25, 0.5, 0.75]


def test_the_outer_rate_is_halved_again_and_again():
    """SGD from w = 3 with rates 0.1, 0.1, 0.05, 0.05, 0.025: w - 1 = 2, 1.8, 1.62, 1.539, 1.46205."""
    learner = Quadratic(3.0)
    learner.outer_optimizer = "sgd"
    losses = [step.loss for step in train(learner, iterations=5, halve_lr_every=2)]
    assert losses == pytest.approx([rest**2 / 2 for rest in (2.0, 1.8, 1.62, 1.539, 1.46205)])


def test_the_batch_gradient_is_bounded_and_its_norm_reported_as_it_was():
    """SGD at w = 3: the gradient 2 is cut to 0.5, so w = 2.95; then 1.95 to 0.5, so w = 2.9; a bound of 2 is none."""
    for bound, ends in ((0.5, (2.0, 1.95, 1.9)), (2.0, (2.0, 1.8, 1.62)), (None, (2.0, 1.8, 1.62))):
        learner = Quadratic(3.0)
        learner.outer_optimizer = "sgd"
        steps = train(learner, iterations=3, outer_clip=bound)
        assert [step.gradient_norm for step in steps] == pytest.approx(ends, rel=1e-5)
        assert [step.loss for step in steps] == pytest.approx([end**2 / 2 for end in ends], rel=1e-5)
        assert steps[0].metrics().keys() == {"train/loss", "train/accuracy", "train/gradient_norm"}


def test_the_largest_norm_and_the_share_of_clipped_episodes():
    """Of four episodes, two are above a bound between the second and the third norm; of the batch none can be."""
    norms = sorted(build("maml", own_net(), episode_clip=9.0).meta_step(episodes(4), progress=0.0).norms.tolist())
    learner = build("maml", own_net(), episode_clip=(norms[1] + norms[2]) / 2)
    (step,) = meta_train(learner, make_optimizer(learner, 0.01), lambda: episodes(4), iterations=1)
    assert step.largest_episode_norm == pytest.approx(norms[3])
    assert step.clipped_episodes == 0.5
    assert step.gradient_norm <= learner.episode_clip
    assert {"train/largest_episode_norm", "train/clipped_episodes"} <= step.metrics().keys()


def test_episodes_without_a_finite_gradient():
    """One of two counts as clipped; two of two end the training."""
    learner = build("maml", own_net(), episode_clip=1.0)
    usual, batches = learner.meta_step, 0

    def overflowing(batch: Episode, **options: Any) -> StepOutcome:
        nonlocal batches
        batches += 1
        outcome = usual(batch, **options)
        norms = torch.tensor([torch.inf, 0.5 if batches == 1 else torch.nan])
        return StepOutcome(outcome.loss, outcome.accuracies, norms)

    learner.meta_step = overflowing
    steps = meta_train(learner, make_optimizer(learner, 0.01), episodes, iterations=2)
    first = next(steps)
    assert (first.largest_episode_norm, first.clipped_episodes) == (float("inf"), 0.5)
    with pytest.raises(DivergedError, match="no episode has a finite gradient at iteration 2; lower `inner_lr`"):
        next(steps)


@pytest.mark.parametrize("start", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_training_before_the_update(start):
    learner = Quadratic(start)
    with pytest.raises(DivergedError, match=r"at iteration 1, episode 0 of the batch; lower `inner_lr` or `outer_lr`"):
        train(learner, iterations=2)
    assert learner.network.weight.item() == pytest.approx(start, nan_ok=True)


@pytest.mark.parametrize("method", ["maml", "fomaml", "anil", "meta_sgd", "mamlpp", "reptile", "protonet"])
@pytest.mark.parametrize("half", ["support_x", "query_x"])
def test_the_error_names_the_iteration_and_the_episode(method, half):
    """Episode 2 of the third batch holds a pixel that is not a number."""
    network, drawn = own_net(), []

    def next_episodes() -> Episode:
        drawn.append(1)
        batch = episodes(4, seed=len(drawn))
        if len(drawn) == 3:
            getattr(batch, half)[2, 0, 0, 0, 0] = float("nan")
        return batch

    learner = build(method, network)
    steps = meta_train(learner, make_optimizer(learner, 0.01), next_episodes, iterations=5)
    assert [next(steps).number, next(steps).number] == [1, 2]
    weights = [parameter.detach().clone() for parameter in network.parameters()]
    with pytest.raises(DivergedError, match="query loss is nan at iteration 3, episode 2 of the batch"):
        next(steps)
    assert all(torch.equal(*pair) for pair in zip(weights, network.parameters(), strict=True))


@pytest.fixture(scope="module")
def sampler() -> EpisodeSampler:
    return EpisodeSampler(data.load("digits"), ways=3, shots=1, queries=4)


def maml_with_dropout(rate: float = 0.5) -> Learner:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 8), nn.Dropout(rate), nn.Tanh(), nn.Linear(8, 3))
    return learners.build("maml", network, inner_lr=0.1, inner_steps=2)


def test_evaluation_does_not_depend_on_the_batch(sampler):
    """Dropout is off in evaluation mode, tasks are independent: seven episodes in parts of 2, 3 or all at once."""
    numbers = sampler.draw(7, torch.Generator().manual_seed(0))
    tables = [evaluate(maml_with_dropout(), sampler, numbers, batch=batch) for batch in (2, 3, 32)]
    assert tables[0].shape == (7, 3)
    assert all(torch.equal(tables[0], table) for table in tables[1:])


def test_validation_is_the_mean_of_the_last_column(sampler):
    numbers = sampler.draw(5, torch.Generator().manual_seed(0))
    expected = evaluate(maml_with_dropout(), sampler, numbers)[:, -1].mean().item()
    assert validate(maml_with_dropout(), sampler, numbers, batch=2) == pytest.approx(expected)


def test_training_lowers_the_loss_and_evaluation_changes_nothing(sampler):
    fixed = sampler.episodes(sampler.draw(4, torch.Generator().manual_seed(0)))
    learner = maml_with_dropout(0.0)
    optimizer = make_optimizer(learner, 0.01)
    losses = [step.loss for step in meta_train(learner, optimizer, lambda: fixed, iterations=8)]
    assert losses[-1] < losses[0]
    before = copy.deepcopy(learner.network.state_dict())
    evaluate(learner, sampler, sampler.draw(3, torch.Generator().manual_seed(1)))
    assert all(torch.equal(value, before[key]) for key, value in learner.network.state_dict().items())


def peak_bytes(chunk: int, *, vectorise: bool) -> int:
    """Most bytes of tensors alive at once in one outer step of 32 tasks, by the allocator's own count."""
    learner = learners.build("maml", own_net("arelu"), inner_lr=0.1, inner_steps=3, chunk=chunk)
    learner.engine = FuncEngine(vectorise=vectorise)
    batch = episodes(32)
    learner.meta_step(batch[:1], progress=0.0)  # the gradients themselves are there from now on
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        learner.meta_step(batch, progress=0.0)
    changes = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    running = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        running += change.nbytes()
        peak = max(peak, running)
    assert len(changes) > 100
    return peak


@pytest.mark.parametrize("vectorise", [True, False])
def test_chunks_of_4_cut_the_peak_of_32_tasks_to_under_a_third(vectorise):
    """An eighth of the graph is held at a time; what does not depend on the number of tasks comes on top."""
    whole, parts = (peak_bytes(chunk, vectorise=vectorise) for chunk in (0, 4))
    assert parts < whole / 3
    assert parts > whole / 16  # the count counts something


RSS_SCRIPT = """
import torch
from arelu_meta import learners
from arelu_meta.training.meta import make_optimizer, meta_train
from tests.learners.small_problems import build, episodes, own_net

torch.set_num_threads(1)
learner = learners.build("maml", own_net("arelu"), engine={engine!r}, inner_lr=0.05, inner_steps=1)
batch = episodes(2)
for step in meta_train(learner, make_optimizer(learner, 0.001), lambda: batch, iterations=500):
    if step.number in (100, 500):
        print(open("/proc/self/statm").read().split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("engine", ["func", pytest.param("higher", marks=pytest.mark.slow)])
def test_memory_does_not_grow_from_iteration_100_to_500(engine):
    script = RSS_SCRIPT.format(engine=engine)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    early, late = (int(pages) for pages in run.stdout.split())
    assert late < 1.01 * early


def test_a_gradient_that_is_not_finite_is_not_scaled():
    """Its norm is infinite, upon which training ends; large ones have a norm though their squares overflow."""
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.tensor([1.0, math.inf, 2.0])
    assert clip_gradients([parameter], 1.0) == math.inf
    assert parameter.grad.tolist() == [1.0, math.inf, 2.0]
    large = torch.nn.Parameter(torch.ones(2))
    large.grad = torch.tensor([3e30, 4e30])  # whose squares overflow
    assert clip_gradients([large], 1.0) == pytest.approx(5e30, rel=1e-6)
    assert large.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)


def test_a_network_that_its_last_step_broke_is_not_measured(sampler):
    """Its answers are no numbers, and would be counted as guesses."""
    learner = maml_with_dropout()
    numbers = sampler.draw(5, torch.Generator().manual_seed(0))
    assert 0 <= validate(learner, sampler, numbers) <= 1
    with torch.no_grad():
        next(learner.network.parameters()).fill_(float("inf"))
    for measure in (validate, evaluate):
        with pytest.raises(DivergedError, match=r"the answers to 4 of 4 episodes are not finite; lower `inner_lr`"):
            measure(learner, sampler, numbers)


@pytest.mark.parametrize("engine", ["func", "higher", "learn2learn"])
def test_bfloat16_passes_leave_float32_updates(engine: str):
    """Inner steps of 1e-4 are below bfloat16's resolution of 2^-8 near 1; they must move the parameters all the same.

    The gradients of both formats point the same way, to the eight bits of bfloat16.
    """
    pytest.importorskip(engine) if engine != "func" else None
    batch, gradients = episodes(4), dict[str, torch.Tensor]()
    for precision in ("fp32", "bf16"):
        learner = build("maml", own_net("arelu"), engine=engine, inner_lr=1e-4, inner_steps=2)
        learner.network.float()
        narrow = Episode(*(each.float() if each.is_floating_point() else each for each in batch.tensors()))
        before = copy.deepcopy(learner.network.state_dict())
        train_once = meta_train(
            learner, make_optimizer(learner, 0.01), lambda given=narrow: given, iterations=1, precision=precision
        )
        next(train_once)
        parameters = list(learner.network.parameters())
        assert {parameter.dtype for parameter in parameters} == {torch.float32}
        gradients[precision] = torch.cat([each.grad.flatten() for each in parameters if each.grad is not None])
        assert gradients[precision].dtype == torch.float32
        learner.network.load_state_dict(before)
        if engine == "func":
            with autocast(torch.device("cpu"), precision):
                moved = learner.engine.adapted_parameters(learner.network, learner.rule, narrow)
            assert all(each.dtype == torch.float32 for each in moved.values())
            assert any(0 < (moved[name] - before[name]).abs().max() < 1e-2 for name in moved)
    assert not torch.equal(gradients["fp32"], gradients["bf16"])
    assert torch.cosine_similarity(gradients["fp32"], gradients["bf16"], dim=0) > 0.99


@pytest.mark.parametrize(("precision", "cast"), [("fp32", False), ("bf16", True)])
def test_evaluation_has_the_precision_of_the_training(sampler, monkeypatch, precision: str, cast: bool):
    learner, numbers, seen = maml_with_dropout(), sampler.draw(3, torch.Generator().manual_seed(0)), list[bool]()

    def measure(batch: Episode, **_options: Any) -> torch.Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return torch.zeros(len(batch), 3)

    for name in ("accuracy_by_step", "final_accuracy", "query_logits"):
        monkeypatch.setattr(learner, name, measure)
    evaluate(learner, sampler, numbers, precision=precision)
    validate(learner, sampler, numbers, precision=precision)
    assert seen == [cast] * 4
