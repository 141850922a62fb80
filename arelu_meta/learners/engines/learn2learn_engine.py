"""The `learn2learn` engine (Arnold et al. 2020, arXiv 2008.12284): episode by episode with its MAML wrapper.

learn2learn 0.2.0 does not build by plain pip, and its requirement qpth, which it can do without, holds numpy below 2;
`make setup` builds it without qpth.
"""

import contextlib
import io
import warnings
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.functional_network import Parameters, as_logits, lent, modules_to_watch, unchanged
from arelu_meta.learners.inner_loop import InnerRule, query_pass

try:
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():  # gym's banner and deprecations
        warnings.simplefilter("ignore")
        from learn2learn.algorithms import MAML
        from learn2learn.algorithms.maml import maml_update
except ImportError as error:
    raise InputError(
        "engine 'learn2learn' needs learn2learn; `make setup` installs it, or use `engine='func'`"
    ) from error


class Learn2LearnEngine:
    """Adapt clones of `learn2learn.algorithms.MAML` by plain SGD; where some parameters rest, by its `maml_update`."""

    recordable = False
    note = ""

    def prepare(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> bool:
        """There is nothing to find out before the first step; episodes are computed one after another."""
        del network, rule, episodes
        return False

    def logits(self, network: nn.Module, rule: InnerRule, episodes: Episode, *, every_step: bool = False) -> Tensor:
        """Give query logits (episodes, points, queries, ways)."""
        wrapper, answers = _wrapper(network, rule), []
        with lent(network), torch.enable_grad():
            for episode in episodes:
                clone = wrapper.clone()
                forward, points = partial(_forward, network, clone), []
                for step in range(rule.steps + 1):
                    if step > 0:
                        _step(clone, rule, rule.loss(forward(episode.support_x), episode.support_y))
                    if every_step or step == rule.steps:
                        points.append(query_pass(forward, network, episode.support_x, episode.query_x))
                answers.append(torch.stack(points))
        logits = torch.stack(answers)
        return logits if torch.is_grad_enabled() else logits.detach()

    def adapted_parameters(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> Parameters:
        """Give the parameters after the last step, each (episodes, ...)."""
        wrapper, adapted = _wrapper(network, rule), []
        with lent(network), torch.enable_grad():
            for episode in episodes:
                clone = wrapper.clone()
                for _ in range(rule.steps):
                    _step(clone, rule, rule.loss(_forward(network, clone, episode.support_x), episode.support_y))
                adapted.append(dict(clone.module.named_parameters()))
        return {name: torch.stack([one[name] for one in adapted]) for name in adapted[0]}


def _forward(network: nn.Module, clone: MAML, x: Tensor) -> Tensor:
    """Run a clone with the network's own buffers, not with what an earlier pass wrote into its copies."""
    for name, buffer in network.named_buffers():
        path, _, leaf = name.rpartition(".")
        setattr(clone.module.get_submodule(path), leaf, buffer.clone())
    with unchanged(modules_to_watch(clone.module)):
        return as_logits(clone(x), network)


def _step(clone: MAML, rule: InnerRule, loss: Tensor) -> None:
    """Take a step of what moves; the clone's own, where that is all."""
    if rule.moving is None:
        clone.adapt(loss)
        return
    parameters = dict(clone.module.named_parameters())
    moving = [name for name in parameters if rule.moves(name)]
    found = torch.autograd.grad(
        loss, [parameters[name] for name in moving], create_graph=not rule.first_order, allow_unused=True
    )
    gradients = dict(zip(moving, found, strict=True))
    clone.module = maml_update(clone.module, clone.lr, [gradients.get(name) for name in parameters])


def _wrapper(network: nn.Module, rule: InnerRule) -> MAML:
    """Wrap a network, or refuse a rule that learn2learn cannot follow."""
    remedy = "use `engine='func'`"
    if isinstance(rule.lr, Mapping):
        raise InputError(f"engine 'learn2learn' has no learned inner rates; {remedy}")
    if rule.clip_norm is not None:
        raise InputError(f"engine 'learn2learn' has no inner gradient clipping; {remedy}")
    if rule.optimizer != "sgd":
        raise InputError(
            f"engine 'learn2learn' has inner optimizer 'sgd', not {rule.optimizer!r}; use `engine='higher'`"
        )
    return MAML(network, lr=rule.lr, first_order=rule.first_order, allow_unused=True, allow_nograd=True)
