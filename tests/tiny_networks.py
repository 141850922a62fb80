"""Networks of a few hundred weights, named in specs as `tests.tiny_networks:...`."""

import torch
from torch import Tensor, nn

TINY = "tests.tiny_networks:tiny"


class Tiny(nn.Module):
    """Two convolutions with batch norm, one ReLU module for two calls, dropout, a head; (N, 3, H, W), H from 8 on."""

    def __init__(self, classes: int = 7, width: int = 6) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, width, 5, stride=2), nn.BatchNorm2d(width)
        self.second, self.act = nn.Conv2d(width, 8, 2), nn.ReLU()
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.first(x)))
        x = self.act(self.second(x)).amax((2, 3))
        return self.head(self.drop(x))


def tiny(classes: int = 7, width: int = 6) -> Tiny:
    """The network of the tests."""
    return Tiny(classes, width)


def two_heads() -> nn.Module:
    """The mean of two classifiers of one width: neither is the head."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.left, self.right = nn.Conv2d(3, 4, 3), nn.Linear(4, 5), nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.body(x).mean((2, 3)).relu()
            return (self.left(x) + self.right(x)) / 2

    return Two()


def convolutional_head() -> nn.Module:
    """A 1x1 convolution as classifier, before the pooling."""
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def hidden_of_the_same_width() -> nn.Module:
    """Two layers of five outputs, one after the other: the last one is the head."""
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(5), nn.ReLU(), nn.Linear(5, 5))


def tuple_output() -> nn.Module:
    """Logits and something else, as networks with side outputs give in training."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc = nn.Conv2d(3, 3, 3), nn.Linear(3, 5)

        def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
            logits = self.fc(self.body(x).mean((2, 3)))
            return (logits, logits) if self.training else logits

    return Both()


def no_features() -> nn.Module:
    """Its answers come from a convolution of 3x3, which is no layer that features are given to."""
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def same_features() -> nn.Module:
    """Features that do not depend on the image."""

    class Same(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.new_ones(len(x), 4))

    return Same()


def no_network() -> int:
    """What a mistaken name leads to."""
    return 3


def saved_state(seed: int = 3, **options: int) -> dict[str, Tensor]:
    """Weights of a `tiny` that went through some batches, so that its norm has statistics."""
    torch.manual_seed(seed)
    network = tiny(**options)
    for _ in range(5):
        network(torch.rand(8, 3, 16, 16))
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def one_value() -> nn.Module:
    """Pools to one value per channel before a batch norm, which then needs two images."""
    pooled = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4))
    return nn.Sequential(*pooled, nn.Flatten(), nn.Linear(4, 5))
