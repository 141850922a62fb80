"""Parts of a user's own, named in specs as `tests.own_parts:...`: activation, backbone, method, data."""

import torch
from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import input_multiple
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.maml import maml
from arelu_meta.learners.prototypes import ProtoNet


class Squareplus(nn.Module):
    """(x + sqrt(x^2 + b)) / 2, of Barron 2021 (arXiv 2112.11687)."""

    def __init__(self, b: float = 4.0) -> None:
        super().__init__()
        self.b = b

    def forward(self, x: Tensor) -> Tensor:
        return (x + (x * x + self.b).sqrt()) / 2


class TinyNet(nn.Module):
    """One hidden layer on the pixels, with features for prototypes."""

    def __init__(
        self, activation: Factory, channels: int, image_size: tuple[int, int], classes: int, width: int = 8
    ) -> None:
        super().__init__()
        self.act = activation()
        pixels = channels * image_size[0] * image_size[1]
        self.hidden = nn.Linear(pixels, width * input_multiple(self.act))
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Give (N, width)."""
        return self.act(self.hidden(x.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def wrong_logits(activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    """A network with one logit too many."""
    return TinyNet(activation, channels, image_size, classes + 1)


def wrong_size(activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    """A network for images of another size."""
    return TinyNet(activation, channels, (image_size[0] + 1, image_size[1]), classes)


def no_key(activation: Factory, channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    """A function with a mistake in it."""
    return TinyNet(activation, channels, image_size, classes, {"depth": 1}["width"])


def without_activation(channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    """A network that would be the same in every arm."""
    return TinyNet(nn.ReLU, channels, image_size, classes)


class HalfProtoNet(ProtoNet):
    """Prototypes whose logits are halved; takes no engine, so it does not adapt by gradient."""

    def query_logits(self, episodes) -> Tensor:
        return super().query_logits(episodes) / 2


def slow_maml(network: nn.Module, *, inner_lr: float, **options) -> GradientLearner:
    """MAML whose inner rate is halved."""
    return maml(network, inner_lr=inner_lr / 2, **options)


slow_maml.engines = ("func", "higher")


def not_a_learner(network: nn.Module, **_options) -> nn.Module:
    """What a mistaken name leads to."""
    return network


def leaves() -> None:
    """A data set that ends the program."""
    raise SystemExit(0)


def stripes(side: int = 8) -> tuple[Tensor, Tensor]:
    """Images of six classes, 20 each: a bright row at the height of the label, on noise."""
    labels = torch.arange(6).repeat(20)
    images = torch.randint(0, 100, (120, 1, side, side), generator=torch.Generator().manual_seed(0))
    images[torch.arange(120), 0, labels] += 150
    return images.to(torch.uint8), labels
