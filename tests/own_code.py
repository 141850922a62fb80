"""Code of one's own: an activation and networks that no other process need have."""

from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.data.episodes import Episode
from arelu_meta.learners.prototypes import ProtoNet


class Squareplus(nn.Module):
    """(x + sqrt(x^2 + b)) / 2 with a learned b (Barron 2021, arXiv 2112.11687)."""

    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x + (x * x + self.b).sqrt()) / 2


class OwnBackbone(nn.Module):
    """One convolution, pooled to one value per channel, and a head that is registered first."""

    def __init__(self, *, activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> None:
        super().__init__()
        del image_size
        self.head, self.body = nn.Linear(6, classes), nn.Conv2d(channels, 6, 5, stride=3)
        self.act = activation()

    def features(self, x: Tensor) -> Tensor:
        return self.act(self.body(x)).amax((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def layers_of_torch(activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> nn.Sequential:
    """A network without a class of its own: nothing in it shows who built it."""
    pixels = channels * image_size[0] * image_size[1]
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 6), activation(), nn.Linear(6, classes))


def leaky() -> nn.Module:
    """An activation likewise."""
    return nn.LeakyReLU(0.3)


class ScaledProtoNet(ProtoNet):
    """Prototypes with a learned scale of the logits, beside the network in the state."""

    def __init__(self, network: nn.Module, **options: Any) -> None:
        super().__init__(network, **options)
        self.scale = nn.Parameter(torch.tensor(3.0))

    def state(self) -> nn.Module:
        module = nn.Module()
        module.network, module.scale = self.network, self.scale
        return module

    def query_logits(self, episodes: Episode) -> Tensor:
        return self.scale * super().query_logits(episodes)


class Branching(OwnBackbone):
    """Looks at the values of its input, which no trace can follow."""

    def features(self, x: Tensor) -> Tensor:
        features = super().features(x)
        return features if bool(features.mean() > 0) else -features


class Normed(OwnBackbone):
    """Batch norm with running statistics, and layer norm."""

    def __init__(self, *, channels: int, **others: Any) -> None:
        super().__init__(channels=channels, **others)
        self.norm, self.layer_norm = nn.BatchNorm2d(6), nn.LayerNorm(6)

    def features(self, x: Tensor) -> Tensor:
        return self.layer_norm(self.act(self.norm(self.body(x))).amax((2, 3)))
