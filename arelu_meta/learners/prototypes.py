"""Nearest class mean: prototypical networks (Snell et al. 2017, arXiv 1703.05175) and the floor on pixels.

The floor `features` is `ProtoNet` with a network that was never trained.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from arelu_meta.activations.parameters import parameter_groups
from arelu_meta.backbones.norm import BatchStatisticsNorm, is_transductive, uses_support_statistics
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.adapted import Adapted
from arelu_meta.learners.gradient import task_losses
from arelu_meta.learners.learner import StepOutcome
from arelu_meta.learners.outer_step import outer_step
from arelu_meta.metrics import accuracy


def prototype_logits(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
    """Minus the squared Euclidean distance of each query to each class mean.

    Shapes: (tasks, supports, d), (tasks, supports), (tasks, queries, d) -> (tasks, queries, ways).

    >>> support = torch.tensor([[[0.0], [2.0]]])
    >>> prototype_logits(support, torch.tensor([[0, 1]]), torch.tensor([[[0.5]]]), 2).tolist()
    [[[-0.25, -2.25]]]
    """
    members = nn.functional.one_hot(labels, ways).to(support.dtype)  # (tasks, supports, ways)
    means = members.transpose(1, 2) @ support / members.sum(1).unsqueeze(-1)  # (tasks, ways, d)
    return -torch.cdist(query, means, compute_mode="donot_use_mm_for_euclid_dist").square()


class ProtoNet:
    """Classify a query by the nearest class mean of the support's features; nothing moves inside an episode.

    The network needs a method `features`; with batch norm, support and query of all tasks go through it together, so
    that they cannot be taken in chunks while training.
    """

    outer_optimizer: Literal["adam", "sgd"] = "adam"

    def __init__(self, network: nn.Module, *, chunk: int = 0, **_inner_loop: Any) -> None:
        if not hasattr(network, "features"):
            raise InputError(f"{type(network).__name__} has no method `features`, which prototypes are made of")
        if uses_support_statistics(network):
            raise InputError(
                "prototypes embed support and query together, so norm 'batch_support' cannot be had; "
                "use norm=running, batch, group or none"
            )
        if chunk and any(isinstance(module, BatchStatisticsNorm | _BatchNorm) for module in network.modules()):
            raise InputError(
                f"chunk = {chunk}, but with batch norm prototypes embed all tasks together; use norm=group or none, or "
                f"leave --chunk out"
            )
        self.network, self.chunk = network, chunk

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Weights and activation parameters of the network."""
        return parameter_groups(self.network, lr=lr)

    def state(self) -> nn.Module:
        """Only the network is learned."""
        return self.network

    def embed(self, images: Tensor) -> Tensor:
        """Features of images, (N, C, H, W) -> (N, d)."""
        features: Callable[[Tensor], Tensor] = getattr(self.network, "features")  # noqa: B009
        return features(images)

    def query_logits(self, episodes: Episode) -> Tensor:
        """Query logits, (tasks, queries, ways)."""
        tasks, supports = episodes.support_y.shape
        images = torch.cat([episodes.support_x, episodes.query_x], dim=1)
        features = self.embed(images.flatten(0, 1)).unflatten(0, (tasks, -1))
        ways = int(episodes.support_y.max()) + 1
        return prototype_logits(features[:, :supports], episodes.support_y, features[:, supports:], ways)

    @torch.no_grad()
    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Take the class means of the support's features, or keep the support where features depend on the batch."""
        if steps is not None or lr is not None:
            raise InputError("prototypes take no gradient steps, so there is no steps and no lr; leave them out")
        if is_transductive(self.network):
            return JointPrototypes(self, support_x, support_y)
        ways = torch.arange(int(support_y.max()) + 1, device=support_y.device)
        features = self.embed(support_x)  # (N, d)
        return Prototypes(self, torch.stack([features[support_y == way].mean(0) for way in ways]))

    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        """Add the gradient of the mean query loss."""
        del progress

        def query_loss(part: Episode) -> tuple[Tensor, Tensor]:
            logits = self.query_logits(part)
            return task_losses(logits, part.query_y), logits

        return outer_step(query_loss, episodes, chunk=self.chunk, share=share)

    @torch.no_grad()
    def accuracy_by_step(self, episodes: Episode) -> Tensor:
        """There is one point only: (tasks, 1)."""
        return self.final_accuracy(episodes).unsqueeze(1)

    @torch.no_grad()
    def final_accuracy(self, episodes: Episode) -> Tensor:
        """Query accuracy of each task, (tasks,)."""
        return accuracy(self.query_logits(episodes), episodes.query_y)


@dataclass(frozen=True, eq=False)
class Prototypes:
    """The class means, (ways, d): each is its own support set of one."""

    learner: ProtoNet
    means: Tensor

    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""
        ways = torch.arange(len(self.means), device=self.means.device)
        query = self.learner.embed(query_x)
        return prototype_logits(self.means[None], ways[None], query[None], len(ways))[0]


@dataclass(frozen=True, eq=False)
class JointPrototypes:
    """The support itself: with batch statistics its features depend on the queries that pass with it."""

    learner: ProtoNet
    support_x: Tensor
    support_y: Tensor

    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""
        query_y = self.support_y.new_zeros(len(query_x))
        episode = Episode(self.support_x, self.support_y, query_x, query_y)
        return self.learner.query_logits(Episode(*(half.unsqueeze(0) for half in episode.tensors())))[0]


class PixelCentroid(ProtoNet):
    """Nearest class mean of the pixels themselves; the network is not used."""

    def embed(self, images: Tensor) -> Tensor:
        """The pixels, flattened."""
        return images.flatten(1)
