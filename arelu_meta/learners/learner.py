"""What a learner is: one outer step, adaptation to a support set, accuracy; and learners that adapt by gradient."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.activations.parameters import parameter_groups
from arelu_meta.backbones.norm import BATCH_NORMS, is_transductive
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError, first_line
from arelu_meta.kernels.episode_operations import ExactOperations
from arelu_meta.kernels.recorded_step import RECORD_AFTER, RecordedStep
from arelu_meta.learners.engines import Engine
from arelu_meta.learners.functional_network import FunctionalNetwork, Parameters
from arelu_meta.learners.inner_loop import InnerRule, episode_losses, query_pass
from arelu_meta.learners.moving import all_but, head_parameters, moving_names
from arelu_meta.metrics import accuracy

# In what torch raises where a function has no second derivative.
NO_SECOND_DERIVATIVE = ("derivative for", "once_differentiable", "don't support automatic differentiation")


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """Query loss, averaged over episodes, and accuracy (episodes,) of one outer step, before its update."""

    loss: Tensor
    accuracies: Tensor


class Adapted(Protocol):
    """A learner after it has seen one support set: answers queries without adapting again."""

    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""


class Learner(ABC):
    """A network that learns from episodes how to adapt to new ones.

    A training loop calls `meta_step` on batches of episodes and steps an optimizer made from `parameter_groups`.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        chunk: episodes held in memory at once; 0: the whole batch.

    >>> from arelu_meta import data, learners
    >>> from arelu_meta.data.episodes import EpisodeSampler
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 5))
    >>> learner = learners.build("maml", network, inner_lr=0.01, inner_steps=1)
    >>> optimizer = torch.optim.Adam(learner.parameter_groups(0.001))
    >>> sampler = EpisodeSampler(data.load("digits"), ways=5, shots=1, queries=3)
    >>> episodes = sampler.sample(4, torch.Generator().manual_seed(0))
    >>> outcome = learner.meta_step(episodes, progress=0.0)
    >>> optimizer.step()
    >>> outcome.accuracies.shape, learner.accuracy_by_step(episodes).shape
    (torch.Size([4]), torch.Size([4, 2]))
    """

    outer_optimizer: Literal["adam", "sgd"] = "adam"
    """what the method is trained with"""

    def __init__(self, network: nn.Module, *, chunk: int = 0) -> None:
        self.network, self.chunk = network, chunk
        self.recorded_step: RecordedStep | None = None

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Give the outer optimizer all that is learned: weights, and activation parameters without weight decay.

        Args:
            lr: learning rate of all groups.

        Returns:
            Parameter groups, as `torch.optim` takes them.
        """
        return parameter_groups(self.network, lr=lr)

    @property
    def transductive(self) -> bool:
        """Whether queries see each other: an answer depends on what is asked with it."""
        return is_transductive(self.network)

    def state(self) -> nn.Module:
        """Give a module whose state_dict holds all that is learned."""
        return self.network

    def prepare(self, episodes: Episode) -> None:
        """Find out with the first episodes what cannot be known without; the first step does so by itself.

        Args:
            episodes: a batch with a leading axis over episodes.

        Raises:
            InputError: the network does not go with the method.
        """
        del episodes

    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        """Add the gradient of the mean query loss after adaptation to `.grad`.

        Args:
            episodes: a batch with a leading axis over episodes.
            progress: how far training has come, from 0 to 1, for methods whose loss changes.
            share: factor of the gradient, where the batch is part of a larger one.

        Returns:
            The mean query loss, and the query accuracy of each episode.
        """
        losses, accuracies = [], []
        for chunk in episodes.chunks(self.chunk or len(episodes)):
            loss, logits = self._add_gradient(chunk, progress, share / len(episodes))
            losses.append(loss)
            accuracies.append(accuracy(logits, chunk.query_y))
        return StepOutcome(torch.cat(losses).mean(), torch.cat(accuracies))

    @abstractmethod
    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Adapt to each episode and take the loss of its queries.

        Args:
            episodes: a batch with a leading axis over episodes.
            progress: how far training has come, from 0 to 1.

        Returns:
            The losses (episodes,), and the query logits (episodes, queries, ways) after the last step.
        """

    def _add_gradient(self, episodes: Episode, progress: float, weight: float) -> tuple[Tensor, Tensor]:
        """Add the gradient of the summed query loss times `weight`; give losses and logits without their graph."""
        losses, logits = self.query_loss(episodes, progress)
        (losses.sum() * weight).backward()
        return losses.detach(), logits.detach()

    @abstractmethod
    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Adapt to one support set as tests do.

        Args:
            support_x: images, (N, C, H, W).
            support_y: labels 0 to ways - 1, (N,).
            steps: gradient steps; None: as many as in tests.
            lr: inner learning rate; None: as trained.

        Returns:
            Something that answers queries.

        Raises:
            InputError: `steps` or `lr` that this method cannot take.
        """

    @abstractmethod
    def query_logits(self, episodes: Episode) -> Tensor:
        """Adapt as tests do and answer the queries.

        Args:
            episodes: a batch with a leading axis over episodes.

        Returns:
            Logits, (episodes, queries, ways).
        """

    @abstractmethod
    def accuracy_by_step(self, episodes: Episode) -> Tensor:
        """Measure as adaptation goes on.

        Args:
            episodes: a batch with a leading axis over episodes.

        Returns:
            The query accuracy before adaptation and after every step, (episodes, steps + 1).
        """

    @torch.no_grad()
    def final_accuracy(self, episodes: Episode) -> Tensor:
        """Measure after the last step alone, which costs less.

        Args:
            episodes: a batch with a leading axis over episodes.

        Returns:
            The query accuracy, (episodes,).
        """
        return accuracy(self.query_logits(episodes), episodes.query_y)

    def record_steps(self, *, after: int = RECORD_AFTER) -> None:
        """Record the operations of the outer step after so many, and replay them: same results, faster.

        Methods that cannot do so ignore it.

        Args:
            after: steps that are taken as written before; recording takes as long as six to fifteen.
        """
        del after

    @property
    def recording_seconds(self) -> float:
        """Time spent on recording so far."""
        return self.recorded_step.seconds if self.recorded_step else 0.0


class GradientLearner(Learner):
    """Learn initial parameters from which a few gradient steps on the support set solve the query set.

    The network's layers and buffers are left as they are; only the outer optimizer changes its parameters. While
    episodes are computed, batch norms take the statistics of the batch, because running ones leak between episodes.

    Args:
        network: any module that maps images (N, C, H, W) to logits (N, ways).
        engine: what computes the inner loop.
        rule: how an episode is adapted to; what the user froze (`requires_grad`) stays out of it, and names in `moving`
            may be patterns.
        test_steps: gradient steps in tests; None: those of the rule.
        chunk: episodes held in memory at once; 0: the whole batch.
    """

    def __init__(
        self, network: nn.Module, *, engine: Engine, rule: InnerRule, test_steps: int | None = None, chunk: int = 0
    ) -> None:
        super().__init__(network, chunk=chunk)
        self.engine, self.rule, self.test_steps = engine, rule, test_steps or rule.steps
        if not isinstance(rule.moving, str):
            self.rule = replace(rule, moving=moving_names(network, rule.moving))

    @property
    def transductive(self) -> bool:
        """Whether queries see each other through the statistics of a norm."""
        return super().transductive or any(isinstance(module, BATCH_NORMS) for module in self.network.modules())

    def prepare(self, episodes: Episode) -> None:
        """Find the head, where it decides what moves, by what the forward pass does; let the engine choose its way."""
        if isinstance(self.rule.moving, str):
            head = head_parameters(self.network, episodes.support_x[0])
            names = head if self.rule.moving == "head" else all_but(self.network, head)
            self.rule = replace(self.rule, moving=moving_names(self.network, names))
        self.engine.prepare(self.network, self.rule, episodes)

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Give each episode's query loss (episodes,) and logits (episodes, queries, ways) after the last step."""
        del progress  # the loss is the same throughout training
        self.prepare(episodes)
        logits = self.engine.logits(self.network, self.rule, episodes)[:, -1]
        return episode_losses(logits, episodes.query_y, self.rule.loss), logits

    def _add_gradient(self, episodes: Episode, progress: float, weight: float) -> tuple[Tensor, Tensor]:
        """Replay the step where it is recorded, and take it as written where not."""
        self.prepare(episodes)
        if self.recorded_step is not None and self.engine.recordable:
            loss, settings = partial(self.query_loss, episodes, progress), (self.rule, self.engine)
            outcome = self.recorded_step(
                loss, episodes.tensors(), weight=weight, module=self.state(), settings=settings
            )
            if outcome is not None:
                return outcome
        try:
            return super()._add_gradient(episodes, progress, weight)
        except (RuntimeError, NotImplementedError) as error:
            if not any(words in str(error) for words in NO_SECOND_DERIVATIVE):
                raise
            raise InputError(
                f"torch cannot differentiate {type(self.network).__name__} twice ({first_line(error)}); "
                f"use `method='fomaml'` or 'reptile', which take first derivatives alone"
            ) from error

    def record_steps(self, *, after: int = RECORD_AFTER) -> None:
        """Record the operations of the outer step after so many, and replay them: same results, faster.

        Ignored where steps may differ: on other engines than `func`, with a loss of one's own, and by methods whose
        loss changes during training.
        """
        alike = type(self).query_loss is GradientLearner.query_loss and self.rule.loss is F.cross_entropy
        if alike and self.engine.recordable:
            self.recorded_step = RecordedStep(after)

    @torch.no_grad()
    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Take `test_steps` gradient steps on the support; `steps` and `lr` replace what was trained with."""
        if steps is not None and steps < 1:
            raise InputError(f"steps = {steps}; adapting takes at least 1")
        if lr is not None and isinstance(self.rule.lr, Mapping):
            raise InputError(f"lr = {lr}, but this model learned its inner rates; leave `lr` out")
        steps = self.test_steps if steps is None else steps
        support = support_x.unsqueeze(0), support_y.unsqueeze(0)  # a batch of one episode, without queries
        episode = Episode(*support, support[0][:, :0], support[1][:, :0])
        self.prepare(episode)
        rule = replace(self.rule, steps=steps, lr=self.rule.lr if lr is None else lr)
        adapted = self.engine.adapted_parameters(self.network, rule, episode)
        # Copies: parameters that do not move would otherwise follow later training of the network.
        parameters = {name: parameter[0].detach().clone() for name, parameter in adapted.items()}
        return AdaptedNetwork(FunctionalNetwork(self.network), parameters, support_x)

    def query_logits(self, episodes: Episode) -> Tensor:
        """Adapt `test_steps` times and answer the queries, (episodes, queries, ways)."""
        return self._test_logits(episodes, every_step=False)[:, -1]

    @torch.no_grad()
    def accuracy_by_step(self, episodes: Episode) -> Tensor:
        """Adapt `test_steps` times and give the accuracy at every point, (episodes, test_steps + 1)."""
        return accuracy(self._test_logits(episodes, every_step=True), episodes.query_y.unsqueeze(1))

    def _test_logits(self, episodes: Episode, *, every_step: bool) -> Tensor:
        self.prepare(episodes)
        rule = replace(self.rule, steps=self.test_steps)
        chunks = episodes.chunks(self.chunk or len(episodes))
        return torch.cat([self.engine.logits(self.network, rule, chunk, every_step=every_step) for chunk in chunks])


@dataclass(frozen=True, eq=False)
class AdaptedNetwork:
    """The parameters after the last step; the support stays beside for norms that take their statistics from it."""

    function: FunctionalNetwork
    parameters: Parameters
    support_x: Tensor

    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""
        with ExactOperations():
            forward = partial(self.function, self.parameters)
            return query_pass(forward, self.function.network, self.support_x, query_x)
