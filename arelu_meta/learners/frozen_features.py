"""Classifiers that are fitted to the features of each support set, while the network stays as it is.

The field compares everything with these: SimpleShot (Wang et al. 2019, arXiv 1911.04623), logistic regression (Tian et
al. 2020, arXiv 2003.11539), nearest neighbours. Nothing is trained here: they are as good as the network they get.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.learners.frozen_heads import FrozenHead, LinearHead, NeighbourHead, PrototypeHead
from arelu_meta.learners.learner import Adapted
from arelu_meta.learners.prototypes import JointPrototypes, ProtoNet

CENTRE_IMAGES, AT_ONCE = 2000, 64  # images that the centre is the mean of, and how many are embedded at once
C = 10.0  # of the logistic regression: inverse strength of its penalty


class KeptTensor(nn.Module):
    """A tensor that is stored with a network; None: there is none yet."""

    value: Tensor | None

    def __init__(self, value: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("value", value)


class FrozenFeatures(ProtoNet):
    """Fit a head to the features of the support, as `fit_head` says, and answer queries with it.

    Args:
        network: any classifier, of which the features are taken, as in `ProtoNet`.
        chunk: not used: every episode is fitted by itself.
    """

    needs_training = False

    @abstractmethod
    def fit_head(self, features: Tensor, labels: Tensor, ways: int) -> FrozenHead:
        """Fit a head to features (N, d) and labels (N,), 0 to ways - 1."""

    @torch.no_grad()
    def query_logits(self, episodes: Episode) -> Tensor:
        """Query logits, (episodes, queries, ways)."""
        count, supports = episodes.support_y.shape
        images = torch.cat([episodes.support_x, episodes.query_x], dim=1)
        features = self.embed(images.flatten(0, 1)).unflatten(0, (count, -1))
        ways = int(episodes.support_y.max()) + 1
        pairs = zip(features, episodes.support_y, strict=True)
        return torch.stack([self.fit_head(each[:supports], labels, ways)(each[supports:]) for each, labels in pairs])

    @torch.no_grad()
    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Fit the head once; where features depend on the batch, the support is kept instead."""
        if steps is not None or lr is not None:
            raise InputError("the network stays as it is, so there are no steps; leave `steps` and `lr` out")
        if self.transductive:
            return JointPrototypes(self, support_x, support_y)
        return FittedHead(self, self.fit_head(self.embed(support_x), support_y, int(support_y.max()) + 1))


@dataclass(frozen=True, eq=False)
class FittedHead:
    """A head that was fitted to one support set."""

    learner: FrozenFeatures
    head: FrozenHead

    @torch.no_grad()
    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""
        answers: Tensor = self.head(self.learner.embed(query_x))
        return answers


class SimpleShot(FrozenFeatures):
    """Nearest class mean of features less their mean over the training classes, at length one (CL2N).

    Without `observe` the mean of the support is taken. Args are those of `FrozenFeatures`.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> model = SimpleShot(network).adapt(torch.rand(4, 1, 2, 2), torch.tensor([0, 0, 1, 1]))
    >>> model.logits(torch.rand(5, 1, 2, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, network: nn.Module, *, chunk: int = 0) -> None:
        super().__init__(network, chunk=chunk)
        self.centre = KeptTensor(None)

    @torch.no_grad()
    def observe(self, images: ImageSet) -> None:
        """Take the mean of the features of training images, at most `CENTRE_IMAGES` of them, spread over the set."""
        self.network.eval()
        numbers = torch.linspace(0, len(images) - 1, min(len(images), CENTRE_IMAGES)).long().to(images.device)
        sums = [self.embed(images.pixels(some)).sum(0) for some in numbers.split(AT_ONCE)]
        self.centre.value = torch.stack(sums).sum(0) / len(numbers)

    def fit_head(self, features: Tensor, labels: Tensor, ways: int) -> FrozenHead:
        """Take the class means."""
        return PrototypeHead(features, labels, ways, centre=self.centre.value)

    def state(self) -> nn.Module:
        """Network and centre."""
        return nn.ModuleDict({"network": self.network, "centre": self.centre})

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over network and centre."""
        self.centre.value = state.get("centre.value")
        super().load_state(state)


class NearestNeighbours(FrozenFeatures):
    """As many nearest support images as there are of a class vote, by cosine of features less the support's mean."""

    def fit_head(self, features: Tensor, labels: Tensor, ways: int) -> FrozenHead:
        """Keep the support."""
        return NeighbourHead(features, labels, ways, max(1, len(labels) // ways))


class LinearProbe(FrozenFeatures):
    """Multinomial logistic regression on the features of the support, by scikit-learn."""

    def fit_head(self, features: Tensor, labels: Tensor, ways: int) -> FrozenHead:
        """Fit the regression, on the CPU."""
        return LinearHead(features.cpu(), labels.cpu(), ways, C).to(features.device)
