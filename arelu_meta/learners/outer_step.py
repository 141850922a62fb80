"""The outer step of methods whose loss is the queries': its gradient, chunk by chunk."""

from collections.abc import Callable

import torch
from torch import Tensor

from arelu_meta.data.episodes import Episode
from arelu_meta.learners.learner import StepOutcome
from arelu_meta.metrics import accuracy


def outer_step(
    query_loss: Callable[[Episode], tuple[Tensor, Tensor]], episodes: Episode, *, chunk: int, share: float
) -> StepOutcome:
    """Add the gradient of the mean query loss, times `share`; one graph, of `chunk` tasks (0: all), is held at a time.

    `query_loss` gives each task's loss (tasks,) and the logits (tasks, queries, ways).
    """
    losses, accuracies = [], []
    for part in episodes.chunks(chunk or len(episodes)):
        loss, logits = query_loss(part)
        (loss.sum() * (share / len(episodes))).backward()
        losses.append(loss.detach())
        accuracies.append(accuracy(logits.detach(), part.query_y))
    return StepOutcome(torch.cat(losses).mean(), torch.cat(accuracies))
