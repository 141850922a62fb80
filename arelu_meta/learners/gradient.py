"""Learners that adapt by gradient: MAML, FOMAML, ANIL and BOIL."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.activations.parameters import parameter_groups
from arelu_meta.backbones.norm import with_batch_statistics
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.adapted import Adapted, AdaptedNetwork
from arelu_meta.learners.engines import Engine
from arelu_meta.learners.head import head_parameters
from arelu_meta.learners.inner_loop import InnerOptimizer, InnerRule
from arelu_meta.learners.learner import StepOutcome
from arelu_meta.learners.outer_step import AddGradient, add_gradient, outer_step
from arelu_meta.metrics import accuracy


class GradientLearner:
    """Learn initial parameters from which a few gradient steps on the support set solve the query set.

    The network is any module that maps images (N, C, H, W) to logits (N, ways); batch norms in it are replaced by batch
    statistics in plain operations, because running statistics leak between episodes and torch's own are wrong under
    `vmap`.
    """

    outer_optimizer: Literal["adam", "sgd"] = "adam"

    def __init__(
        self, network: nn.Module, *, engine: Engine, rule: InnerRule, test_steps: int | None = None, chunk: int = 0
    ) -> None:
        with_batch_statistics(network)
        self.network, self.engine, self.rule = network, engine, _without_frozen(rule, network)
        self.test_steps, self.chunk = test_steps or rule.steps, chunk
        self.add_gradient: AddGradient = add_gradient

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Weights and activation parameters of the network."""
        return parameter_groups(self.network, lr=lr)

    def state(self) -> nn.Module:
        """Only the network is learned."""
        return self.network

    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        """Add the gradient of the mean query loss after adaptation."""

        def query_loss(part: Episode) -> tuple[Tensor, Tensor]:
            return self.query_loss(part, progress)

        return outer_step(query_loss, episodes, chunk=self.chunk, share=share, add_gradient=self.add_gradient)

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Give each task's query loss (tasks,), and the logits of the last step (tasks, queries, ways)."""
        del progress  # the loss is the same throughout training
        logits = self.engine.logits(self.network, self.rule, episodes)[:, -1]
        return task_losses(logits, episodes.query_y), logits

    @torch.no_grad()
    def accuracy_by_step(self, episodes: Episode) -> Tensor:
        """Adapt `test_steps` times and give the accuracy at every point, (tasks, test_steps + 1)."""
        return accuracy(self._test_logits(episodes, every_step=True), episodes.query_y.unsqueeze(1))

    @torch.no_grad()
    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Take `test_steps` gradient steps on the support; `steps` and `lr` replace what was trained with."""
        if steps is not None and steps < 1:
            raise InputError(f"steps = {steps}; adapting takes at least 1")
        rule = replace(self.rule, steps=self.test_steps if steps is None else steps)
        if lr is not None:
            if isinstance(rule.lr, Mapping):
                raise InputError(f"lr = {lr}, but this model learned its inner rates; leave lr out")
            rule = replace(rule, lr=lr)
        support_x, support_y = support_x.unsqueeze(0), support_y.unsqueeze(0)  # one task
        stacked = self.engine.adapted(self.network, rule, Episode(support_x, support_y, support_x[:, :0], support_y))
        # Copies: parameters that do not move would otherwise follow later training of the network.
        parameters = {name: values[0].detach().clone() for name, values in stacked.items()}
        return AdaptedNetwork(self.network, parameters, support_x[0])

    def query_logits(self, episodes: Episode) -> Tensor:
        """Adapt `test_steps` times and answer the queries, (tasks, queries, ways)."""
        return self._test_logits(episodes, every_step=False)[:, -1]

    @torch.no_grad()
    def final_accuracy(self, episodes: Episode) -> Tensor:
        """Adapt `test_steps` times and give the accuracy at the end, (tasks,)."""
        return accuracy(self.query_logits(episodes), episodes.query_y)

    def _test_logits(self, episodes: Episode, *, every_step: bool) -> Tensor:
        rule = replace(self.rule, steps=self.test_steps)
        parts = episodes.chunks(self.chunk or len(episodes))
        return torch.cat([self.engine.logits(self.network, rule, part, every_step=every_step) for part in parts])


def _without_frozen(rule: InnerRule, network: nn.Module) -> InnerRule:
    """What the user froze does not adapt either."""
    free = frozenset(name for name, parameter in network.named_parameters() if parameter.requires_grad)
    if all(name in free for name, _ in network.named_parameters()):
        return rule
    return replace(rule, moving=free if rule.moving is None else rule.moving & free)


def task_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each task: (tasks, queries, ways) and (tasks, queries) -> (tasks,)."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)


def maml(
    network: nn.Module,
    *,
    engine: Engine,
    inner_lr: float,
    inner_steps: int,
    test_steps: int | None = None,
    clip_norm: float | None = None,
    inner_optimizer: InnerOptimizer = "sgd",
    chunk: int = 0,
    first_order: bool = False,
    moving: frozenset[str] | None = None,
) -> GradientLearner:
    """MAML: all parameters move, and the outer step sees through the inner gradients."""
    rule = InnerRule(
        lr=inner_lr,
        steps=inner_steps,
        first_order=first_order,
        moving=moving,
        clip_norm=clip_norm,
        optimizer=inner_optimizer,
    )
    return GradientLearner(network, engine=engine, rule=rule, test_steps=test_steps, chunk=chunk)


def fomaml(network: nn.Module, **options: Any) -> GradientLearner:
    """First-order MAML: the inner gradients are constants to the outer step."""
    return maml(network, first_order=True, **options)


def anil(network: nn.Module, **options: Any) -> GradientLearner:
    """ANIL: only the head moves inside an episode."""
    return maml(network, moving=head_parameters(network), **options)


def boil(network: nn.Module, **options: Any) -> GradientLearner:
    """BOIL: everything but the head moves inside an episode."""
    body = frozenset(name for name, _ in network.named_parameters()) - head_parameters(network)
    if not body:
        raise InputError(f"{type(network).__name__} is nothing but a head, and boil moves the rest; use --method maml")
    return maml(network, moving=body, **options)
