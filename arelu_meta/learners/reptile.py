"""Reptile: move the initial parameters towards the adapted ones (Nichol, Achiam, Schulman 2018, arXiv 1803.02999)."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.kernels.recorded_step import add_gradients
from arelu_meta.learners.engines import Engine
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.episode_clip import clipped_sum
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.inner_loop import InnerOptimizer, InnerRule, Loss, episode_losses
from arelu_meta.learners.learner import StepOutcome, query_score


class Reptile(GradientLearner):
    """The outer gradient is initial minus adapted parameters, averaged over episodes; plain SGD steps along it.

    The learning rate of that SGD is the paper's step size epsilon. Adaptation in training sees the whole episode,
    support and query, for the method has no query loss; tests adapt to the support alone.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        engine: the engine `func`.
        inner_lr: learning rate of the adaptation.
        inner_steps: gradient steps in a training episode.
        test_steps: gradient steps in validation and test; None: `inner_steps`.
        clip_norm: bound on the joint Euclidean norm of the inner gradients; None: no bound.
        inner_optimizer: "sgd".
        chunk: episodes held in memory at once; 0: the whole batch.
        loss: of logits (N, ways) and labels (N,), a mean over N.

    Raises:
        InputError: another engine.
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
        loss: Loss = F.cross_entropy,
    ) -> None:
        if not isinstance(engine, FuncEngine):
            raise InputError("method 'reptile' runs on engine 'func'")
        rule = InnerRule(
            lr=inner_lr, steps=inner_steps, first_order=True, clip_norm=clip_norm, optimizer=inner_optimizer, loss=loss
        )
        super().__init__(network, engine=engine, rule=rule, test_steps=test_steps, chunk=chunk)

    @property
    def clips_episodes(self) -> bool:
        """Whether `episode_clip` is heeded: here it bounds how far an episode moves the parameters."""
        return type(self).meta_step is Reptile.meta_step

    @torch.no_grad()
    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        """Add initial minus adapted parameters to `.grad`; loss and accuracy are the query's before the step."""
        del progress
        losses, accuracies, norms = [], [], []
        parameters = dict(self.network.named_parameters())
        for chunk in episodes.chunks(self.chunk or len(episodes)):
            x = torch.cat([chunk.support_x, chunk.query_x], dim=1)
            y = torch.cat([chunk.support_y, chunk.query_y], dim=1)
            whole = Episode(x, y, chunk.query_x, chunk.query_y)
            adapted = self.engine.adapted_parameters(self.network, self.rule, whole)
            moved = {name: parameter - adapted[name] for name, parameter in parameters.items()}
            steps: Sequence[Tensor | None]
            if self.episode_clip is None:
                steps = [displacement.sum(0) * (share / len(episodes)) for displacement in moved.values()]
            else:
                steps, norm = clipped_sum(list(moved.values()), self.episode_clip, share / len(episodes))
                norms.append(norm)
            add_gradients(list(parameters.values()), steps)
            logits = self.engine.logits(self.network, self.rule, chunk)[:, -1]
            losses.append(episode_losses(logits, chunk.query_y, self.rule.loss))
            accuracies.append(query_score(logits, chunk.query_y))
        return StepOutcome(torch.cat(losses).mean(), torch.cat(accuracies), torch.cat(norms) if norms else None)
