"""Nearest class mean: prototypical networks (Snell et al. 2017, arXiv 1703.05175) and the floor on pixels.

The floor `features` is `ProtoNet` with a network that was never trained.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from arelu_meta.backbones.features import FeatureNetwork, feature_network
from arelu_meta.backbones.norm import BATCH_NORMS, BatchStatisticsNorm, uses_support_statistics
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.inner_loop import episode_losses
from arelu_meta.learners.learner import Adapted, Learner


def prototype_logits(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
    """Minus the squared Euclidean distance of each query to each class mean.

    Args:
        support: features, (episodes, supports, d).
        labels: 0 to ways - 1, (episodes, supports).
        query: features, (episodes, queries, d).
        ways: number of classes, each of which has support.

    Returns:
        Logits, (episodes, queries, ways).

    >>> support = torch.tensor([[[0.0], [2.0]]])
    >>> prototype_logits(support, torch.tensor([[0, 1]]), torch.tensor([[[0.5]]]), 2).tolist()
    [[[-0.25, -2.25]]]
    """
    members = nn.functional.one_hot(labels, ways).to(support.dtype)  # (episodes, supports, ways)
    means = members.transpose(1, 2) @ support / members.sum(1).unsqueeze(-1)  # (episodes, ways, d)
    return -torch.cdist(query, means, compute_mode="donot_use_mm_for_euclid_dist").square()


class ProtoNet(Learner):
    """Classify a query by the nearest class mean of the support's features; nothing moves inside an episode.

    With batch norm, support and query of all episodes go through the network together, so that they cannot be taken in
    chunks while training.

    Args:
        network: any classifier; its features are found as `feature_network` does: a method `features`, timm's own way,
            or what its last layer is given.
        chunk: episodes held in memory at once; 0: the whole batch.

    Raises:
        InputError: norms that do not go with prototypes; with the first images: a network without features.

    >>> from arelu_meta import activations, backbones
    >>> relu = activations.factory("relu")
    >>> network = backbones.build("mnist_conv", activation=relu, channels=1, image_size=(28, 28), classes=5)
    >>> model = ProtoNet(network).adapt(torch.rand(6, 1, 28, 28), torch.tensor([0, 0, 1, 1, 2, 2]))
    >>> model.logits(torch.rand(4, 1, 28, 28)).shape
    torch.Size([4, 3])
    """

    def __init__(self, network: nn.Module, *, chunk: int = 0) -> None:
        if uses_support_statistics(network):
            raise InputError(
                "prototypes embed support and query together, so norm 'batch_support' cannot be had; "
                "use another `norm`: running, batch, group or none"
            )
        if chunk and any(isinstance(module, (BatchStatisticsNorm, *BATCH_NORMS)) for module in network.modules()):
            raise InputError(
                f"chunk = {chunk}, but with batch norm prototypes embed all episodes together; "
                f"use `norm` group or none, or leave `chunk` out"
            )
        super().__init__(network, chunk=chunk)
        self._features: FeatureNetwork | None = None  # found with the first images

    @property
    def clips_episodes(self) -> bool:
        """Whether gradients of single episodes are bounded: with batch norm an episode has none of its own."""
        return False

    def embed(self, images: Tensor) -> Tensor:
        """Features of images, (N, C, H, W) -> (N, d)."""
        return self.features_of(images)(images)

    def features_of(self, images: Tensor) -> FeatureNetwork:
        """Give the network up to its classifier, which is found with the first images."""
        if self._features is None:
            self._features = feature_network(self.network, images[:2])
        return self._features

    def query_logits(self, episodes: Episode) -> Tensor:
        """Query logits, (episodes, queries, ways)."""
        if episodes.support_y.is_floating_point():
            raise InputError("prototypes are means of classes, and these targets are real numbers; use `method='maml'`")
        count, supports = episodes.support_y.shape
        images = torch.cat([episodes.support_x, episodes.query_x], dim=1)
        features = self.embed(images.flatten(0, 1)).unflatten(0, (count, -1))
        ways = int(episodes.support_y.max()) + 1
        return prototype_logits(features[:, :supports], episodes.support_y, features[:, supports:], ways)

    def query_loss(self, episodes: Episode, progress: float) -> tuple[Tensor, Tensor]:
        """Give each episode's query loss (episodes,), and the query logits (episodes, queries, ways)."""
        del progress  # the loss is the same throughout training
        logits = self.query_logits(episodes)
        return episode_losses(logits, episodes.query_y), logits

    @torch.no_grad()
    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Take the class means of the support's features, or keep the support.

        It is kept where features depend on the batch, and where a subclass answers queries by more than means.
        """
        if steps is not None or lr is not None:
            raise InputError("prototypes take no gradient steps, so they have neither; leave `steps` and `lr` out")
        if self.transductive or type(self).query_logits is not ProtoNet.query_logits:
            return JointPrototypes(self, support_x, support_y)
        ways = torch.arange(int(support_y.max()) + 1, device=support_y.device)
        features = self.embed(support_x)  # (N, d)
        return Prototypes(self, torch.stack([features[support_y == way].mean(0) for way in ways]))

    @torch.no_grad()
    def accuracy_by_step(self, episodes: Episode) -> Tensor:
        """There is one point only: (episodes, 1)."""
        return self.final_accuracy(episodes).unsqueeze(1)


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
    """The support itself, which `query_logits` answers from; its features may depend on queries that pass with it."""

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
