"""The `func` engine: torch.func, vectorised over tasks."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.kernels.episode_operations import EpisodeOperations
from arelu_meta.learners.inner_loop import InnerRule, Parameters, adapt
from arelu_meta.learners.query import query_logits

Result = TypeVar("Result")


class FuncEngine:
    """Adapt with `torch.func`, all tasks at once; without `vectorise` one after another, as a check."""

    def __init__(self, vectorise: bool = True) -> None:
        self.vectorise = vectorise

    def logits(self, network: nn.Module, rule: InnerRule, episodes: Episode, *, every_step: bool = False) -> Tensor:
        """Give query logits (tasks, points, queries, ways)."""

        def task(parameters: Parameters, support_x: Tensor, support_y: Tensor, query_x: Tensor) -> Tensor:
            path = self._path(network, rule, parameters, support_x, support_y)
            points = path if every_step else path[-1:]
            forwards = [partial(_forward, network, point) for point in points]
            return torch.stack([query_logits(forward, network, support_x, query_x) for forward in forwards])

        parameters: Parameters = dict(network.named_parameters())
        tensors = episodes.tensors()[:3]
        if self.vectorise:
            return _over_tasks(task, parameters, *tensors)
        return torch.stack(
            [task(parameters, *(tensor[number] for tensor in tensors)) for number in range(len(episodes))]
        )

    def adapted(self, network: nn.Module, rule: InnerRule, episodes: Episode) -> Parameters:
        """Give the parameters after the last step, each (tasks, ...)."""

        def task(parameters: Parameters, support_x: Tensor, support_y: Tensor) -> Parameters:
            return self._path(network, rule, parameters, support_x, support_y)[-1]

        parameters: Parameters = dict(network.named_parameters())
        inputs = (episodes.support_x, episodes.support_y)
        if self.vectorise:
            return _over_tasks(task, parameters, *inputs)
        tasks = [task(parameters, *(tensor[number] for tensor in inputs)) for number in range(len(episodes))]
        return {name: torch.stack([adapted[name] for adapted in tasks]) for name in parameters}

    def _path(
        self, network: nn.Module, rule: InnerRule, parameters: Parameters, support_x: Tensor, support_y: Tensor
    ) -> list[Parameters]:
        if rule.optimizer != "sgd":
            raise InputError(f"engine 'func' has inner optimizer 'sgd', not {rule.optimizer!r}; use --engine higher")

        def support_loss(current: Parameters) -> Tensor:
            return F.cross_entropy(_forward(network, current, support_x), support_y)

        return adapt(support_loss, parameters, rule)


def _over_tasks(task: Callable[..., Result], parameters: Parameters, support_x: Tensor, *others: Tensor) -> Result:
    """Run all tasks at once; a CPU has operations of its own for that."""
    on_cpu = support_x.device.type == "cpu"
    with EpisodeOperations() if on_cpu else contextlib.nullcontext() as operations:

        def kept(parameters: Parameters, support_x: Tensor, *others: Tensor) -> Result:
            if operations is not None:
                operations.keep(support_x)
            return task(parameters, support_x, *others)

        # Random slopes (RReLU) must differ between tasks, as they would in a loop.
        in_dims = (None, 0, *(0 for _ in others))
        return torch.vmap(kept, in_dims=in_dims, randomness="different")(parameters, support_x, *others)


def _forward(network: nn.Module, parameters: Parameters, x: Tensor) -> Tensor:
    return functional_call(network, parameters, (x,))
