"""The meta-learning loops: outer steps over batches of episodes, and evaluation on fixed ones."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from arelu_meta.data.episodes import Episode, EpisodeSampler
from arelu_meta.errors import DivergedError
from arelu_meta.learners.learner import Learner, StepOutcome
from arelu_meta.runtime import processes
from arelu_meta.training.forward import Precision, autocast

PROBED = 4  # episodes that tell whether a network still answers
REMEDY = "lower `inner_lr` or `outer_lr`, or set `clip_norm` or `episode_clip`"


@dataclass(frozen=True)
class Iteration:
    """One outer step: its number from 1, and the query loss and accuracy of its episodes before the update.

    Of a regression, `accuracy` is the mean squared error of the queries, as `query_score` gives it.
    `gradient_norm` is the norm of the batch gradient before `outer_clip`. With `episode_clip` there are also the
    largest norm of an episode's own gradient, and the share of episodes above the bound.
    """

    number: int
    loss: float
    accuracy: float
    gradient_norm: float
    largest_episode_norm: float | None = None
    clipped_episodes: float | None = None

    def metrics(self, measure: str = "accuracy") -> dict[str, float]:
        """Give what is logged of the step, by name; `measure` is that of the score of the queries."""
        values = {"loss": self.loss, measure: self.accuracy, "gradient_norm": self.gradient_norm}
        if self.largest_episode_norm is not None and self.clipped_episodes is not None:
            values |= {"largest_episode_norm": self.largest_episode_norm, "clipped_episodes": self.clipped_episodes}
        return {f"train/{name}": value for name, value in values.items()}


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
    outer_clip: float | None = None,
    precision: Precision = "fp32",
) -> Iterator[Iteration]:
    """Train, one update per batch of episodes, and yield after each; the caller logs, validates, saves, stops.

    Under torchrun every process takes its share of each batch's episodes.

    Args:
        learner, optimizer: what is trained, in place, and its outer optimizer, as `make_optimizer` makes it.
        next_episodes: gives the next batch of episodes, the same in every process.
        iterations, done: outer steps of the whole training, and those that a resumed run has taken before.
        halve_lr_every: outer steps after which the learning rate is halved, again and again.
        outer_clip: bound on the norm of the batch gradient; the learner's `episode_clip` is heeded before.
        precision: number format of the passes through the network; parameters and updates stay as they are.

    Raises:
        DivergedError: the query loss of a batch is not finite, or with `episode_clip` no episode's gradient is; no
            update is made.
    """
    for number in range(done + 1, iterations + 1):
        learner.network.train()
        episodes = next_episodes()
        mine = episodes[processes.rank() :: processes.world_size()]
        optimizer.zero_grad()
        share, progress = len(mine) / len(episodes), (number - 1) / iterations
        with autocast(mine.query_x.device, precision):
            outcome = learner.meta_step(mine, progress=progress, share=share) if share else _nothing(mine)
        accuracies = processes.gather_rows(outcome.accuracies, len(episodes))
        losses = processes.gather_rows(outcome.loss.expand(len(mine)), len(episodes))
        loss = losses.mean().item()
        if not math.isfinite(loss):
            where = f"at iteration {number}, episode {_first_not_finite(learner, mine, len(episodes))} of the batch"
            raise DivergedError(f"the query loss is {loss} {where}; {REMEDY}")
        learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        processes.all_reduce_gradients(learned)
        norm = clip_gradients(learned, outer_clip)
        clipping = _clipping(learner, outcome, norm, len(episodes), number)
        optimizer.step()
        if halve_lr_every and number % halve_lr_every == 0:
            for group in optimizer.param_groups:
                group["lr"] /= 2
        yield Iteration(number, loss, accuracies.mean().item(), norm, *clipping)


def _nothing(mine: Episode) -> StepOutcome:
    """Give the outcome of a process without a share, which takes part in what follows all the same."""
    return StepOutcome(mine.query_x.new_zeros(()), mine.query_x.new_zeros(0, dtype=torch.float32))


def _first_not_finite(learner: Learner, mine: Episode, count: int) -> int:
    """Find the first episode whose loss alone is not finite, in whatever process; 0 when each is finite."""
    alone = [learner.meta_step(episode, progress=1.0, share=0.0).loss for episode in mine.chunks(1)]
    bad = torch.tensor([not math.isfinite(one) for one in alone], dtype=torch.float32, device=mine.query_x.device)
    return int(processes.gather_rows(bad, count).argmax())


def _clipping(
    learner: Learner, outcome: StepOutcome, norm: float, count: int, number: int
) -> tuple[float, float] | tuple[()]:
    """Give the largest norm of an episode's gradient and the share above the bound; refuse what is not finite."""
    if not math.isfinite(norm):
        raise DivergedError(f"the gradient is not finite at iteration {number}; {REMEDY}")
    if learner.episode_clip is None:
        return ()
    own = outcome.norms if outcome.norms is not None else outcome.loss.new_zeros(0)  # a process without a share
    norms = processes.gather_rows(own, count)
    if not norms.isfinite().any():
        raise DivergedError(f"no episode has a finite gradient at iteration {number}; {REMEDY}")
    return norms.max().item(), 1 - (norms <= learner.episode_clip).float().mean().item()


def clip_gradients(parameters: Iterable[Parameter], bound: float | None) -> float:
    """Scale gradients down together to a joint Euclidean norm of at most `bound`; give the norm before.

    Where a gradient is not finite, neither is the norm, and nothing is scaled.
    """
    learned = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in learned if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if not norm.isfinite():  # large ones overflow when they are squared
        norm = torch.nn.utils.get_total_norm([gradient.double() for gradient in gradients])
    if bound is not None and norm.isfinite():
        torch.nn.utils.clip_grads_with_norm_(learned, bound, norm)
    return norm.item()


def evaluate(
    learner: Learner,
    sampler: EpisodeSampler,
    numbers: Tensor,
    *,
    batch: int = 32,
    check: bool = True,
    precision: Precision = "fp32",
) -> Tensor:
    """Query accuracy, or error, of drawn episodes at every adaptation step, (episodes, steps + 1), batch by batch.

    With `check`, DivergedError where the network no longer answers; once is enough for the parts of one evaluation.
    """
    with autocast(sampler.images.device, precision):
        return _over_batches(learner.accuracy_by_step, learner, sampler, numbers, batch, check=check)


def validate(
    learner: Learner, sampler: EpisodeSampler, numbers: Tensor, *, batch: int = 32, precision: Precision = "fp32"
) -> float:
    """Mean query accuracy, or error, after the last adaptation step only, for choosing between iterations."""
    with autocast(sampler.images.device, precision):
        return _over_batches(learner.final_accuracy, learner, sampler, numbers, batch).mean().item()


@torch.no_grad()
def _check_answers(learner: Learner, sampler: EpisodeSampler, numbers: Tensor) -> None:
    """Refuse a network that the last outer step broke: its answers would be counted as guesses.

    A few episodes tell, the same in every process; single ones may diverge as they are adapted to.
    """
    answers = learner.query_logits(sampler.episodes(numbers[:PROBED])).flatten(1)
    if not answers.isfinite().all(1).any():
        raise DivergedError(f"the answers to {len(answers)} of {len(answers)} episodes are not finite; {REMEDY}")


def _over_batches(
    measure: Callable[[Episode], Tensor],
    learner: Learner,
    sampler: EpisodeSampler,
    numbers: Tensor,
    batch: int,
    *,
    check: bool = True,
) -> Tensor:
    learner.network.eval()
    if check:
        _check_answers(learner, sampler, numbers)
    if len(numbers) < processes.world_size():  # too few to share out: every process measures all
        return measure(sampler.episodes(numbers)).cpu()
    mine = numbers[processes.rank() :: processes.world_size()]
    rows = torch.cat([measure(sampler.episodes(part)) for part in mine.split(batch)])
    return processes.gather_rows(rows, len(numbers)).cpu()
