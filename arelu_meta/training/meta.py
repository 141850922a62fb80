"""The meta-learning loops: outer steps over batches of episodes, and evaluation on fixed ones."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from arelu_meta.data.episodes import Episode, EpisodeSampler
from arelu_meta.errors import DivergedError
from arelu_meta.learners.learner import Learner, StepOutcome
from arelu_meta.runtime import processes


@dataclass(frozen=True)
class Iteration:
    """One outer step: its number from 1, and the query loss and accuracy of its episodes before the update."""

    number: int
    loss: float
    accuracy: float


def make_optimizer(learner: Learner, lr: float) -> Optimizer:
    """Make the outer optimizer that the learner wants."""
    make = torch.optim.Adam if learner.outer_optimizer == "adam" else torch.optim.SGD
    return make(learner.parameter_groups(lr))


def meta_train(
    learner: Learner,
    optimizer: Optimizer,
    next_episodes: Callable[[], Episode],
    *,
    iterations: int,
    done: int = 0,
    halve_lr_every: int | None = None,
) -> Iterator[Iteration]:
    """Train, one update per batch of episodes, and yield after each; the caller logs, validates, saves, stops.

    `done` steps were taken before (a resumed run). Under torchrun every process takes its share of each batch's tasks.
    """
    rank, world = processes.rank(), processes.world_size()
    for number in range(done + 1, iterations + 1):
        learner.network.train()
        episodes = next_episodes()
        mine = episodes[rank::world]
        optimizer.zero_grad()
        outcome = _share_of_step(learner, mine, progress=(number - 1) / iterations, share=len(mine) / len(episodes))
        accuracies = processes.gather_rows(outcome.accuracies, len(episodes))
        losses = processes.gather_rows(outcome.loss.expand(len(mine)), len(episodes))
        loss = losses.mean().item()
        if not math.isfinite(loss):
            worst = _first_bad(learner, mine, total=len(episodes))
            raise DivergedError(
                f"the query loss is {loss} at iteration {number}, episode {worst} of the batch; "
                f"lower --inner-lr or --outer-lr, or set --clip-norm"
            )
        processes.add_gradients(parameter for group in optimizer.param_groups for parameter in group["params"])
        optimizer.step()
        if halve_lr_every and number % halve_lr_every == 0:
            for group in optimizer.param_groups:
                group["lr"] /= 2
        yield Iteration(number, loss, accuracies.mean().item())


def evaluate(learner: Learner, sampler: EpisodeSampler, numbers: Tensor, *, batch: int = 32) -> Tensor:
    """Query accuracy on drawn episodes at every adaptation step, (episodes, steps + 1), in batches of tasks."""
    return _over_batches(learner.accuracy_by_step, learner, sampler, numbers, batch)


def validate(learner: Learner, sampler: EpisodeSampler, numbers: Tensor, *, batch: int = 32) -> float:
    """Mean query accuracy after the last adaptation step only, for choosing between iterations."""
    return _over_batches(learner.final_accuracy, learner, sampler, numbers, batch).mean().item()


def _over_batches(
    measure: Callable[[Episode], Tensor], learner: Learner, sampler: EpisodeSampler, numbers: Tensor, batch: int
) -> Tensor:
    learner.network.eval()
    if len(numbers) < processes.world_size():  # too few to share out: every process measures all
        return measure(sampler.episodes(numbers)).cpu()
    mine = numbers[processes.rank() :: processes.world_size()]
    rows = torch.cat([measure(sampler.episodes(part)) for part in mine.split(batch)])
    return processes.gather_rows(rows, len(numbers)).cpu()


def _share_of_step(learner: Learner, mine: Episode, *, progress: float, share: float) -> StepOutcome:
    """Take this process's share of an outer step, which is nothing when there are more processes than tasks."""
    if len(mine) == 0:
        return StepOutcome(mine.query_x.new_zeros(()), mine.query_x.new_zeros(0, dtype=torch.float32))
    return learner.meta_step(mine, progress=progress, share=share)


def _first_bad(learner: Learner, mine: Episode, *, total: int) -> int:
    """Find the first episode of the batch whose loss alone is not finite, in whatever process; 0 when each is fine."""
    losses = [learner.meta_step(episode, progress=1.0, share=0.0).loss for episode in mine.chunks(1)]
    bad = torch.tensor([not math.isfinite(loss) for loss in losses], dtype=torch.float32, device=mine.query_x.device)
    return int(processes.gather_rows(bad, total).argmax())
