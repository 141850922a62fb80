"""The outer step of methods whose loss is the queries': its gradient, chunk by chunk."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from arelu_meta.data.episodes import Episode
from arelu_meta.learners.learner import StepOutcome
from arelu_meta.metrics import accuracy

# gives each task's loss (tasks,) and the logits (tasks, queries, ways)
QueryLoss: TypeAlias = Callable[[Episode], tuple[Tensor, Tensor]]
# adds the gradient of the summed loss times a weight, and gives the same two without their graph
AddGradient: TypeAlias = Callable[[QueryLoss, Episode, float], tuple[Tensor, Tensor]]


def add_gradient(query_loss: QueryLoss, part: Episode, weight: float) -> tuple[Tensor, Tensor]:
    """Take the loss and differentiate it."""
    loss, logits = query_loss(part)
    (loss.sum() * weight).backward()
    return loss.detach(), logits.detach()


def outer_step(
    query_loss: QueryLoss,
    episodes: Episode,
    *,
    chunk: int,
    share: float,
    add_gradient: AddGradient = add_gradient,
) -> StepOutcome:
    """Add the gradient of the mean query loss, times `share`; of `chunk` tasks (0: all) at a time, to save memory."""
    losses, accuracies = [], []
    for part in episodes.chunks(chunk or len(episodes)):
        loss, logits = add_gradient(query_loss, part, share / len(episodes))
        losses.append(loss)
        accuracies.append(accuracy(logits, part.query_y))
    return StepOutcome(torch.cat(losses).mean(), torch.cat(accuracies))
