"""What a learner is: one outer step, adaptation to a support set, accuracy."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from arelu_meta.activations.parameters import parameter_groups
from arelu_meta.backbones.norm import BATCH_NORMS, is_transductive
from arelu_meta.data.episodes import Episode
from arelu_meta.data.imageset import ImageSet
from arelu_meta.kernels.recorded_step import RECORD_AFTER, RecordedStep, add_gradients
from arelu_meta.learners.episode_clip import clipped_sum
from arelu_meta.metrics import accuracy, mean_squared_error


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """Query loss, averaged over episodes, and accuracy (episodes,) of one outer step, before its update.

    Of episodes with real targets `accuracies` are mean squared errors, as `query_score` gives them.
    `norms` (episodes,) are those of each episode's gradient before it is clipped; None where they are not needed.
    """

    loss: Tensor
    accuracies: Tensor
    norms: Tensor | None = None


def query_score(answers: Tensor, targets: Tensor) -> Tensor:
    """Judge the answers to queries: by accuracy, or by the mean squared error where targets are real numbers.

    Args:
        answers: logits (..., queries, ways), or predictions (..., queries, d).
        targets: labels (..., queries) of whole numbers, or real targets (..., queries, d).

    Returns:
        Shares of right answers, or mean squared errors, (...).

    >>> query_score(torch.tensor([[2.0, 1.0]]), torch.tensor([0])).item()
    1.0
    >>> query_score(torch.tensor([[2.0]]), torch.tensor([[4.0]])).item()
    4.0
    """
    return (mean_squared_error if targets.is_floating_point() else accuracy)(answers, targets)


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
        self.episode_clip: float | None = None
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

    @property
    def note(self) -> str:
        """Why episodes are computed one after another; empty where they are not, or nothing is lost by it."""
        return ""

    @property
    def clips_episodes(self) -> bool:
        """Whether `episode_clip`, a bound on the norm of each episode's gradient, is heeded."""
        return type(self).meta_step is Learner.meta_step

    def state(self) -> nn.Module:
        """Give a module whose state_dict holds all that is learned."""
        return self.network

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what was learned before.

        Args:
            state: what `state().state_dict()` gave. Running statistics of batch norms may be missing: learners that
                adapt by gradient do not use them, and had none in version 0.1.
        """
        module = self.state()
        norms = [(f"{path}.", norm) for path, norm in module.named_modules() if isinstance(norm, BATCH_NORMS)]
        unused = {path + name: buffer for path, norm in norms for name, buffer in norm.named_buffers()}
        module.load_state_dict({**unused, **state})

    def prepare(self, episodes: Episode) -> None:
        """Find out with the first episodes what cannot be known without; the first step does so by itself.

        Args:
            episodes: a batch with a leading axis over episodes.

        Raises:
            InputError: the network does not go with the method.
        """
        del episodes

    def observe(self, images: ImageSet) -> None:
        """Take from the training images what a method needs besides episodes; most need nothing.

        Args:
            images: the images that training episodes are drawn from.
        """
        del images

    def choose(self, episodes: Iterable[Episode]) -> str:
        """Make the choices that are left after training; most methods have none.

        Args:
            episodes: validation episodes, in batches.

        Returns:
            What was chosen, for a report; empty: nothing.
        """
        del episodes
        return ""

    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        """Add the gradient of the mean query loss after adaptation to `.grad`, of each episode at most `episode_clip`.

        Args:
            episodes: a batch with a leading axis over episodes.
            progress: how far training has come, from 0 to 1, for methods whose loss changes.
            share: factor of the gradient, where the batch is part of a larger one.

        Returns:
            The mean query loss, the query accuracy of each episode, and with `episode_clip` the norms of the gradients.
        """
        losses, accuracies, norms = [], [], []
        for chunk in episodes.chunks(self.chunk or len(episodes)):
            loss, logits, *norm = self._add_gradient(chunk, progress, share / len(episodes))
            losses.append(loss)
            accuracies.append(query_score(logits, chunk.query_y))
            norms += norm
        return StepOutcome(torch.cat(losses).mean(), torch.cat(accuracies), torch.cat(norms) if norms else None)

    @abstractmethod
    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Adapt to each episode and take the loss of its queries.

        Args:
            episodes: a batch with a leading axis over episodes.
            progress: how far training has come, from 0 to 1.

        Returns:
            The losses (episodes,), and the query logits (episodes, queries, ways) after the last step.
        """

    def _add_gradient(self, episodes: Episode, progress: float, weight: float) -> tuple[Tensor, ...]:
        """Add the gradient of the summed query loss times `weight`.

        Returns:
            Losses and logits without their graph, and with `episode_clip` the norms of the episodes' gradients.
        """
        if self.episode_clip is None:
            losses, logits = self.query_loss(episodes, progress)
            (losses.sum() * weight).backward()
            return losses.detach(), logits.detach()
        learned = [parameter for parameter in self.state().parameters() if parameter.requires_grad]
        outcome, gradients = self._clipped_gradients(episodes, progress, weight, self.episode_clip, learned)
        add_gradients(learned, gradients)
        return outcome

    def _clipped_gradients(
        self, episodes: Episode, progress: float, weight: float, bound: float, learned: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
        """Take episodes one by one, so that each has a gradient of its own; give what came of them, and the sums."""
        parts: list[tuple[Tensor, ...]] = []
        total: list[Tensor | None] = [None] * len(learned)
        for episode in episodes.chunks(1):
            losses, logits = self.query_loss(episode, progress)
            found = torch.autograd.grad(losses.sum(), learned, allow_unused=True)
            own, norms = clipped_sum([None if one is None else one.unsqueeze(0) for one in found], bound, weight)
            total = [
                new if old is None else old if new is None else old + new for old, new in zip(total, own, strict=True)
            ]
            parts.append((losses.detach(), logits.detach(), norms))
        return tuple(torch.cat(part) for part in zip(*parts, strict=True)), total

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
            The query accuracy (or error, `query_score`) before adaptation and after each step, (episodes, steps + 1).
        """

    @torch.no_grad()
    def final_accuracy(self, episodes: Episode) -> Tensor:
        """Measure after the last step alone, which costs less.

        Args:
            episodes: a batch with a leading axis over episodes.

        Returns:
            The query accuracy, or error as `query_score` gives it, (episodes,).
        """
        return query_score(self.query_logits(episodes), episodes.query_y)

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
