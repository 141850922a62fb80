"""The `higher` engine (Grefenstette et al. 2019, arXiv 1910.01727): task by task, inner SGD or differentiable Adam."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import higher
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.inner_loop import InnerRule, Parameters, clipped
from arelu_meta.learners.query import query_logits


class HigherEngine:
    """Adapt a functional copy that `higher` makes of the network."""

    def logits(self, network: nn.Module, rule: InnerRule, episodes: Episode, *, every_step: bool = False) -> Tensor:
        """Give query logits (tasks, points, queries, ways)."""
        return torch.stack([self._task(network, rule, episode, every_step) for episode in episodes])

    def adapted(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> Parameters:
        """Give the parameters after the last step, each (tasks, ...)."""
        names = [name for name, _ in network.named_parameters()]
        tasks = [self._path(network, rule, episode, every_step=False)[1][-1] for episode in episodes]
        return {name: torch.stack([task[number] for task in tasks]) for number, name in enumerate(names)}

    def _task(self, network: nn.Module, rule: InnerRule, episode: Episode, every_step: bool) -> Tensor:
        functional, points = self._path(network, rule, episode, every_step)
        forwards = [partial(functional, params=point) for point in points]
        with torch.enable_grad():
            answers = [query_logits(forward, network, episode.support_x, episode.query_x) for forward in forwards]
        return torch.stack(answers)

    def _path(
        self, network: nn.Module, rule: InnerRule, episode: Episode, every_step: bool
    ) -> tuple[Any, list[list[Tensor]]]:
        """Give higher's functional network, and its parameters after the last step or at every point."""
        moves = [rule.moves(name) for name, _ in network.named_parameters()]
        moving = [parameter for parameter, chosen in zip(network.parameters(), moves, strict=True) if chosen]
        make = torch.optim.SGD if rule.optimizer == "sgd" else torch.optim.Adam
        optimizer = make(moving, lr=_one_rate(rule))
        # higher's `track_higher_grads=False` would cut off the initial parameters too; first order is had by detaching
        # the inner gradients instead. `copy_initial_weights=False`: the outer gradient is wanted on the network itself.
        context = higher.innerloop_ctx(
            network, optimizer, copy_initial_weights=False, track_higher_grads=torch.is_grad_enabled()
        )
        with torch.enable_grad(), context as (functional, stepper):
            points = [list(functional.fast_params)] if every_step else []
            for _ in range(rule.steps):
                loss = F.cross_entropy(functional(episode.support_x), episode.support_y)
                stepper.step(loss, grad_callback=lambda gradients: _treated(gradients, moves, rule))
                if every_step:
                    points.append(list(functional.fast_params))
            if not every_step:
                points.append(list(functional.fast_params))
            return functional, points


def _one_rate(rule: InnerRule) -> float:
    if isinstance(rule.lr, Mapping):
        raise InputError("engine 'higher' has no learned inner rates here; use --engine func")
    return rule.lr


def _treated(gradients: list[Any], moves: list[bool], rule: InnerRule) -> list[Any]:
    """Detach for first order and clip what moves; the rest, of which higher gives gradients too, is None.

    A parameter that moves but was not used has None as well.
    """
    gradients = [gradient if chosen else None for gradient, chosen in zip(gradients, moves, strict=True)]
    present = [gradient for gradient in gradients if gradient is not None]
    if rule.first_order:
        present = [gradient.detach() for gradient in present]
    if rule.clip_norm is not None:
        present = clipped(present, rule.clip_norm)
    treated = iter(present)
    return [None if gradient is None else next(treated) for gradient in gradients]
