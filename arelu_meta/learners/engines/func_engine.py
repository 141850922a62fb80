"""The `func` engine: torch.func, vectorised over episodes."""

import contextlib
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.kernels.episode_operations import EpisodeOperations, ExactOperations
from arelu_meta.learners.engines.self_check import difference
from arelu_meta.learners.functional_network import FunctionalNetwork, Parameters
from arelu_meta.learners.inner_loop import InnerRule, adapt, graph_gradients, query_pass, transformed_gradients
from arelu_meta.learners.known_layers import is_known


class OneByOne(UserWarning):
    """Episodes are computed one after another, which is slower: `vmap` would not do for the network."""


class FuncEngine:
    """Adapt with `torch.func`.

    Args:
        vectorise: whether all episodes are computed at once, on a CPU by kernels made for that, or one after another,
            with torch's own; None: at once, where the meta-gradient is right. Networks of known layers are; for others
            both ways are compared once, on small episodes in float64 (`self_check`), and `OneByOne` is warned of where
            they differ.
        same_draws: whether random numbers are the same in every episode, so that both ways can be compared.
    """

    def __init__(self, vectorise: bool | None = None, *, same_draws: bool = False) -> None:
        self.vectorise, self.same_draws = vectorise, same_draws
        self._checked: dict[Hashable, str] = {}

    @property
    def recordable(self) -> bool:
        """Whether all steps run the same operations."""
        return self.vectorise is not False

    @property
    def note(self) -> str:
        """Why episodes are computed one after another; empty where they are not."""
        return next((reason for reason in self._checked.values() if reason), "")

    def logits(self, network: nn.Module, rule: InnerRule, episodes: Episode, *, every_step: bool = False) -> Tensor:
        """Give query logits (episodes, points, queries, ways)."""
        function, vectorise = FunctionalNetwork(network), self.prepare(network, rule, episodes)

        def one_episode(
            parameters: Parameters, rates: Parameters, support_x: Tensor, support_y: Tensor, query_x: Tensor
        ) -> Tensor:
            own = replace(rule, lr=rates) if rates else rule
            with self._operations(vectorise, support_x):
                path = _path(function, own, parameters, support_x, support_y, vectorise)
                forwards = [partial(function, point) for point in (path if every_step else path[-1:])]
                return torch.stack([query_pass(forward, network, support_x, query_x) for forward in forwards])

        inputs = episodes.tensors()[:3]
        if rule.start is not None:
            rates = dict(rule.lr) if isinstance(rule.lr, Mapping) else {}
            return torch.vmap(one_episode, randomness="different")(rule.start, rates, *inputs)
        if vectorise:
            return self._vectorised(one_episode, (function.parameters, {}), inputs)
        return torch.stack([one_episode(function.parameters, {}, *episode) for episode in zip(*inputs, strict=True)])

    def adapted_parameters(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> Parameters:
        """Give the parameters after the last step, each (episodes, ...)."""
        function, vectorise = FunctionalNetwork(network), self.prepare(network, rule, episodes)

        def one_episode(parameters: Parameters, support_x: Tensor, support_y: Tensor) -> Parameters:
            with self._operations(vectorise, support_x):
                return _path(function, rule, parameters, support_x, support_y, vectorise)[-1]

        inputs = episodes.tensors()[:2]
        if vectorise:
            return self._vectorised(one_episode, (function.parameters,), inputs)
        adapted = [one_episode(function.parameters, *episode) for episode in zip(*inputs, strict=True)]
        return {name: torch.stack([one[name] for one in adapted]) for name in function.parameters}

    def prepare(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> bool:
        """Tell whether `vmap` gives the right meta-gradient; found out once for each structure of a network."""
        if rule.optimizer != "sgd":
            raise InputError(f"engine 'func' has inner optimizer 'sgd', not {rule.optimizer!r}; use `engine='higher'`")
        if rule.start is not None:
            return True  # found out before, with parameters that all episodes share
        if self.vectorise is not None:
            return self.vectorise
        if episodes.support_x.is_meta or all(map(is_known, network.modules())):
            return True
        if len(episodes) == 1:
            return False  # a loop of one is as fast, and right
        layers = tuple((type(module), module.training) for module in network.modules())
        shapes = tuple(parameter.shape for parameter in network.parameters())
        key = (layers, shapes, episodes.support_x.shape[2:], rule.first_order, rule.moving, rule.loss)
        if key not in self._checked:
            doubted, trusted = (FuncEngine(vectorise=way, same_draws=True).logits for way in (True, False))
            reason = self._checked[key] = difference(network, rule, episodes, doubted=doubted, trusted=trusted)
            if reason:
                name = type(network).__name__
                line = f"{name}: episodes are computed one after another, as `vmap` {reason}"
                warnings.warn(line, OneByOne, stacklevel=2)
        return not self._checked[key]

    def _operations(self, vectorise: bool, support_x: Tensor) -> contextlib.AbstractContextManager[object]:
        """A CPU has operations of its own for many episodes at once; they reuse what they compute from the support."""
        if self.same_draws:
            torch.manual_seed(0)
        return EpisodeOperations(support_x) if vectorise and support_x.device.type == "cpu" else ExactOperations()

    def _vectorised(
        self, function: Callable[..., Any], shared: tuple[Parameters, ...], inputs: Sequence[Tensor]
    ) -> Any:
        """Run a function of one episode on all of them; random slopes (RReLU) differ between them, as in a loop."""
        in_dims = (*(None for _ in shared), *(0 for _ in inputs))
        randomness = "same" if self.same_draws else "different"
        return torch.vmap(function, in_dims=in_dims, randomness=randomness)(*shared, *inputs)


def _path(
    function: FunctionalNetwork,
    rule: InnerRule,
    parameters: Parameters,
    support_x: Tensor,
    support_y: Tensor,
    vectorise: bool,
) -> list[Parameters]:
    """Give the parameters before the first and after each step on one support set."""
    gradients_of = transformed_gradients if vectorise else partial(graph_gradients, first_order=rule.first_order)
    return adapt(
        lambda point: rule.loss(function(point, support_x), support_y), parameters, rule, gradients_of=gradients_of
    )
