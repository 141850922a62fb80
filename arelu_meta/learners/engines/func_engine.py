"""The `func` engine: torch.func, vectorised over episodes."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.kernels.episode_operations import EpisodeOperations
from arelu_meta.learners.inner_loop import InnerRule, Parameters, adapt, query_pass


class FuncEngine:
    """Adapt with `torch.func`.

    Args:
        vectorise: whether all episodes are computed at once, on a CPU by kernels made for that; otherwise one after
            another, with torch's own.
    """

    def __init__(self, vectorise: bool = True) -> None:
        self.vectorise = self.recordable = vectorise

    def logits(self, network: nn.Module, rule: InnerRule, episodes: Episode, *, every_step: bool = False) -> Tensor:
        """Give query logits (episodes, points, queries, ways)."""

        def one_episode(parameters: Parameters, support_x: Tensor, support_y: Tensor, query_x: Tensor) -> Tensor:
            with self._operations(support_x):
                path = _path(network, rule, parameters, support_x, support_y)
                forwards = [partial(functional_call, network, point) for point in (path if every_step else path[-1:])]
                return torch.stack([query_pass(forward, network, support_x, query_x) for forward in forwards])

        parameters: Parameters = dict(network.named_parameters())
        inputs = episodes.tensors()[:3]
        if self.vectorise:
            return _vectorised(one_episode, parameters, *inputs)
        return torch.stack([one_episode(parameters, *episode) for episode in zip(*inputs, strict=True)])

    def adapted_parameters(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> Parameters:
        """Give the parameters after the last step, each (episodes, ...)."""

        def one_episode(parameters: Parameters, support_x: Tensor, support_y: Tensor) -> Parameters:
            with self._operations(support_x):
                return _path(network, rule, parameters, support_x, support_y)[-1]

        parameters: Parameters = dict(network.named_parameters())
        inputs = episodes.tensors()[:2]
        if self.vectorise:
            return _vectorised(one_episode, parameters, *inputs)
        adapted = [one_episode(parameters, *episode) for episode in zip(*inputs, strict=True)]
        return {name: torch.stack([one[name] for one in adapted]) for name in parameters}

    def _operations(self, support_x: Tensor) -> contextlib.AbstractContextManager[object]:
        """A CPU has operations of its own for many episodes at once; they reuse what they compute from the support."""
        if not self.vectorise or support_x.device.type != "cpu":
            return contextlib.nullcontext()
        return EpisodeOperations(support_x)


def _path(
    network: nn.Module, rule: InnerRule, parameters: Parameters, support_x: Tensor, support_y: Tensor
) -> list[Parameters]:
    """Give the parameters before the first and after each step on one support set."""
    if rule.optimizer != "sgd":
        raise InputError(f"engine 'func' has inner optimizer 'sgd', not {rule.optimizer!r}; use `engine='higher'`")
    return adapt(lambda point: rule.loss(functional_call(network, point, support_x), support_y), parameters, rule)


def _vectorised(function: Callable[..., Any], parameters: Parameters, *inputs: Tensor) -> Any:
    """Run a function of one episode on all of them; random slopes (RReLU) differ between them, as in a loop."""
    in_dims = (None, *(0 for _ in inputs))
    return torch.vmap(function, in_dims=in_dims, randomness="different")(parameters, *inputs)
