"""MAML++: how to train your MAML (Antoniou et al. 2019, arXiv 1810.09502)."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.learners.gradient import task_losses
from arelu_meta.learners.learned_rates import LearnedRateLearner

FIRST_ORDER_UNTIL = 0.25  # share of training before second derivatives are switched on
MULTI_STEP_UNTIL = 0.5  # share of training over which the loss moves from all steps to the last


class MamlPlusPlus(LearnedRateLearner):
    """MAML with learned rates per layer and step, a multi-step loss that fades to the last step, and first order at
    first.

    Of the paper's six changes the batch-norm ones are the backbone's `norm`, and the cosine schedule is left to the
    outer optimizer; these three are the learner's.
    """

    def __init__(self, network: nn.Module, *, inner_steps: int, **options: Any) -> None:
        super().__init__(network, shape=lambda _weight: (inner_steps,), inner_steps=inner_steps, **options)

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Weigh the query losses after each step; early in training all count, later the last alone."""
        rule = replace(self.rule, first_order=progress < FIRST_ORDER_UNTIL)
        weights = step_weights(rule.steps, progress)
        if weights[:-1].any():
            logits = self.engine.logits(self.network, rule, episodes, every_step=True)[:, 1:]  # (tasks, steps, ...)
        else:
            logits = self.engine.logits(self.network, rule, episodes)
            weights = weights[-1:]
        losses = torch.stack([task_losses(logits[:, step], episodes.query_y) for step in range(logits.shape[1])], 1)
        return losses @ weights.to(losses), logits[:, -1]


def step_weights(steps: int, progress: float) -> Tensor:
    """Weights of the loss after each step, summing to one: equal at the start, all on the last from MULTI_STEP_UNTIL
    on.

    >>> step_weights(4, 0.0).tolist(), step_weights(4, 0.25).tolist(), step_weights(4, 1.0).tolist()
    ([0.25, 0.25, 0.25, 0.25], [0.125, 0.125, 0.125, 0.625], [0.0, 0.0, 0.0, 1.0])
    """
    early = max(0.0, 1 - progress / MULTI_STEP_UNTIL) / steps
    weights = torch.full((steps,), early)
    weights[-1] = 1 - early * (steps - 1)
    return weights
