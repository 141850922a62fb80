"""The `higher` engine (Grefenstette et al. 2019, arXiv 1910.01727): inner SGD or differentiable Adam, by episode."""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.kernels.module_internals import has_call_hooks
from arelu_meta.learners.functional_network import Parameters, as_logits, lent, modules_to_watch, unchanged
from arelu_meta.learners.inner_loop import InnerRule, clipped, query_pass

with warnings.catch_warnings():
    warnings.simplefilter("ignore", SyntaxWarning)  # its code is of 2020: `is 1`, and escapes that are none
    import higher


class HigherEngine:
    """Adapt a functional copy that `higher` makes of the network."""

    recordable = False
    note = ""

    def prepare(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> bool:
        """Refuse what higher's copies leave out; episodes are computed one after another."""
        del rule, episodes
        hooked = [name for name, module in network.named_modules() if has_call_hooks(module)]
        if hooked:
            name = hooked[0] or type(network).__name__
            raise InputError(f"engine 'higher' calls no hooks, and {name} has some; use `engine='func'`")
        return False

    def logits(self, network: nn.Module, rule: InnerRule, episodes: Episode, *, every_step: bool = False) -> Tensor:
        """Give query logits (episodes, points, queries, ways)."""
        answers = []
        with lent(network), torch.enable_grad():
            for episode in episodes:
                functional, points = _path(network, rule, episode, every_step)
                forwards = [partial(_forward, network, functional, params=point) for point in points]
                by_point = [query_pass(forward, network, episode.support_x, episode.query_x) for forward in forwards]
                answers.append(torch.stack(by_point))
        return torch.stack(answers)

    def adapted_parameters(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> Parameters:
        """Give the parameters after the last step, each (episodes, ...)."""
        names = [name for name, _ in network.named_parameters()]
        with lent(network):
            adapted = [_path(network, rule, episode, every_step=False)[1][-1] for episode in episodes]
        return {name: torch.stack([one[number] for one in adapted]) for number, name in enumerate(names)}


def _path(network: nn.Module, rule: InnerRule, episode: Episode, every_step: bool) -> tuple[Any, list[list[Tensor]]]:
    """Give higher's functional network, and its parameters after the last step or at every point."""
    if isinstance(rule.lr, Mapping):
        raise InputError("engine 'higher' has no learned inner rates here; use `engine='func'`")
    moves = [rule.moves(name) for name, _ in network.named_parameters()]
    moving = [parameter for parameter, chosen in zip(network.parameters(), moves, strict=True) if chosen]
    make = torch.optim.SGD if rule.optimizer == "sgd" else torch.optim.Adam
    optimizer = make(moving, lr=rule.lr)
    # higher's `track_higher_grads=False` would cut off the initial parameters too; first order is had by detaching
    # the inner gradients instead. `copy_initial_weights=False`: the outer gradient is wanted on the network itself.
    context = higher.innerloop_ctx(
        network, optimizer, copy_initial_weights=False, track_higher_grads=torch.is_grad_enabled()
    )
    with torch.enable_grad(), context as (functional, stepper):
        points = [list(functional.fast_params)] if every_step else []
        for _ in range(rule.steps):
            loss = rule.loss(_forward(network, functional, episode.support_x), episode.support_y)
            stepper.step(loss, grad_callback=partial(_inner_gradients, moves, rule))
            if every_step:
                points.append(list(functional.fast_params))
        if not every_step:
            points.append(list(functional.fast_params))
        return functional, points


def _forward(network: nn.Module, functional: Any, x: Tensor, **parameters: Any) -> Tensor:
    """Run higher's copy with the network's own buffers, not with what an earlier pass wrote into its copies."""
    higher.patch.buffer_sync(network, functional)
    with unchanged(functional.modules() if modules_to_watch(network) else ()):
        return as_logits(functional(x, **parameters), network)


def _inner_gradients(moves: list[bool], rule: InnerRule, gradients: list[Any]) -> list[Any]:
    """Detach for first order and clip what moves; the rest, of which higher gives gradients too, is None.

    A parameter that moves but was not used has None as well.
    """
    gradients = [gradient if chosen else None for gradient, chosen in zip(gradients, moves, strict=True)]
    present = [gradient for gradient in gradients if gradient is not None]
    if rule.first_order:
        present = [gradient.detach() for gradient in present]
    if rule.clip_norm is not None:
        present = clipped(present, rule.clip_norm)
    remaining = iter(present)
    return [None if gradient is None else next(remaining) for gradient in gradients]
