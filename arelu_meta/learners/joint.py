"""Joint training, which MAML is held against: a network that learns all episodes at once and adapts in tests alone."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.inner_loop import episode_losses
from arelu_meta.learners.maml import maml


class Joint(GradientLearner):
    """Train on support and query of all episodes without an inner step; tests adapt as those of `maml` do.

    The control of Finn et al. 2017 (arXiv 1703.03400, section 5.1): what fine-tuning does from weights that were
    pretrained on all functions and not meta-trained. It is meant for regression: classes of an episode are numbered
    anew in each, so that a network which does not adapt can learn nothing about them.

    Args:
        network: any module that maps images (N, C, H, W) to predictions (N, d), or to logits (N, ways).
        options: the other arguments of `maml`; `inner_lr` and the steps are those of the tests.

    >>> from arelu_meta.learners import engines
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(1, 1))
    >>> loss = nn.functional.mse_loss
    >>> learner = Joint(network, engine=engines.build("func"), inner_lr=0.01, inner_steps=10, loss=loss)
    >>> x = torch.zeros(2, 5, 1)
    >>> learner.accuracy_by_step(Episode(x, x, x, x)).shape
    torch.Size([2, 11])
    """

    def __init__(self, network: nn.Module, **options: Any) -> None:
        made = maml(network, **options)
        super().__init__(network, engine=made.engine, rule=made.rule, test_steps=made.test_steps, chunk=made.chunk)

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Give each episode's loss (episodes,) over support and query, and the query's answers, all before adapting."""
        del progress
        x = torch.cat([episodes.support_x, episodes.query_x], 1)
        y = torch.cat([episodes.support_y, episodes.query_y], 1)
        whole = Episode(episodes.support_x, episodes.support_y, x, y)
        answers = self.engine.logits(self.network, replace(self.rule, steps=0), whole)[:, -1]
        return episode_losses(answers, y, self.rule.loss), answers[:, episodes.support_y.shape[1] :]
