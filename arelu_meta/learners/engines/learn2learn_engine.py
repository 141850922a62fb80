"""The `learn2learn` engine (Arnold et al. 2020, arXiv 2008.12284): task by task with its MAML wrapper.

learn2learn 0.2.0 does not build by plain pip on Python 3.11 and holds numpy below 2, so it is an extra; `make setup`
installs it.
"""

import contextlib
import io
import warnings
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.inner_loop import InnerRule, Parameters
from arelu_meta.learners.query import query_logits

try:
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():  # gym's banner and deprecations
        warnings.simplefilter("ignore")
        from learn2learn.algorithms import MAML
except ImportError as error:
    raise InputError(
        "engine 'learn2learn' needs learn2learn; `make setup` installs it, or use --engine func"
    ) from error


class Learn2LearnEngine:
    """Adapt clones of `learn2learn.algorithms.MAML`; only whole networks and plain SGD, as that wrapper does."""

    def logits(self, network: nn.Module, rule: InnerRule, episodes: Episode, *, every_step: bool = False) -> Tensor:
        """Give query logits (tasks, points, queries, ways)."""
        _check(rule)
        wrapper = MAML(network, lr=rule.lr, first_order=rule.first_order)
        with torch.enable_grad():
            found = torch.stack([self._task(wrapper, rule, episode, every_step) for episode in episodes])
        return found if torch.is_grad_enabled() else found.detach()

    def adapted(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> Parameters:
        """Give the parameters after the last step, each (tasks, ...)."""
        _check(rule)
        wrapper = MAML(network, lr=rule.lr, first_order=rule.first_order)
        tasks = []
        with torch.enable_grad():
            for episode in episodes:
                learner = wrapper.clone()
                for _ in range(rule.steps):
                    learner.adapt(F.cross_entropy(learner(episode.support_x), episode.support_y))
                tasks.append(dict(learner.module.named_parameters()))
        return {name: torch.stack([task[name] for task in tasks]) for name in tasks[0]}

    def _task(self, wrapper: MAML, rule: InnerRule, episode: Episode, every_step: bool) -> Tensor:
        learner = wrapper.clone()
        points = [self._answer(learner, episode)] if every_step or rule.steps == 0 else []
        for step in range(rule.steps):
            learner.adapt(F.cross_entropy(learner(episode.support_x), episode.support_y))
            if every_step or step == rule.steps - 1:
                points.append(self._answer(learner, episode))
        return torch.stack(points)

    def _answer(self, learner: MAML, episode: Episode) -> Tensor:
        return query_logits(learner, learner, episode.support_x, episode.query_x)


def _check(rule: InnerRule) -> None:
    remedy = "use --engine func"
    if isinstance(rule.lr, Mapping):
        raise InputError(f"engine 'learn2learn' has no learned inner rates; {remedy}")
    if rule.moving is not None:
        raise InputError(f"engine 'learn2learn' adapts all parameters, not some; {remedy}")
    if rule.clip_norm is not None:
        raise InputError(f"engine 'learn2learn' has no inner gradient clipping; {remedy}")
    if rule.optimizer != "sgd":
        raise InputError(f"engine 'learn2learn' has inner optimizer 'sgd', not {rule.optimizer!r}; use --engine higher")
