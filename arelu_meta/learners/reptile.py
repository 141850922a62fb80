"""Reptile: move the initial parameters towards the adapted ones (Nichol, Achiam, Schulman 2018, arXiv 1803.02999)."""

from typing import Literal

import torch
from torch import nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.engines import Engine
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.gradient import GradientLearner, task_losses
from arelu_meta.learners.inner_loop import InnerOptimizer, InnerRule
from arelu_meta.learners.learner import StepOutcome
from arelu_meta.metrics import accuracy


class Reptile(GradientLearner):
    """The outer gradient is initial minus adapted parameters, averaged over tasks; the outer optimizer is plain SGD.

    `outer_lr` is the paper's step size epsilon. Adaptation in training sees the whole episode, support and query, for
    the method has no query loss; tests adapt to the support alone.
    """

    outer_optimizer: Literal["adam", "sgd"] = "sgd"

    def __init__(
        self,
        network: nn.Module,
        *,
        engine: Engine,
        inner_lr: float,
        inner_steps: int,
        test_steps: int | None = None,
        clip_norm: float | None = None,
        inner_optimizer: InnerOptimizer = "sgd",
        chunk: int = 0,
    ) -> None:
        if not isinstance(engine, FuncEngine):
            raise InputError("method 'reptile' runs on engine 'func'")
        self._func = engine
        rule = InnerRule(
            lr=inner_lr, steps=inner_steps, first_order=True, clip_norm=clip_norm, optimizer=inner_optimizer
        )
        super().__init__(network, engine=engine, rule=rule, test_steps=test_steps, chunk=chunk)

    @torch.no_grad()
    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        """Add initial minus adapted parameters to `.grad`; loss and accuracy are the query's before the step."""
        del progress
        losses, accuracies = [], []
        for part in episodes.chunks(self.chunk or len(episodes)):
            x = torch.cat([part.support_x, part.query_x], dim=1)
            y = torch.cat([part.support_y, part.query_y], dim=1)
            adapted = self._func.adapted(self.network, self.rule, Episode(x, y, part.query_x, part.query_y))
            for name, parameter in self.network.named_parameters():
                step = (parameter - adapted[name]).sum(0) * (share / len(episodes))
                parameter.grad = step if parameter.grad is None else parameter.grad + step
            logits = self.engine.logits(self.network, self.rule, part)[:, -1]
            losses.append(task_losses(logits, part.query_y))
            accuracies.append(accuracy(logits, part.query_y))
        return StepOutcome(torch.cat(losses).mean(), torch.cat(accuracies))
