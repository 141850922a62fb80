"""Methods that move the network itself, from a head that fits already: norms and biases, activations, adapters, or all.

The head starts as logistic regression on the features of the start (Kumar et al. 2022), and a few epochs of AdamW move
it with what the method says. Running statistics of batch norms stay as the weights have them.
"""

import copy
import math
from collections import OrderedDict
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.optim.lr_scheduler import LambdaLR

from arelu_meta.activations.parameters import activation_parameters
from arelu_meta.backbones.features import FeatureNetwork
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.kinds.adapt.lora import MARK, add_adapters, merge_adapters
from arelu_meta.learners.frozen_heads import LinearHead
from arelu_meta.learners.moving import norm_parameters
from arelu_meta.seeding import generator
from arelu_meta.surgery import swap
from arelu_meta.training.forward import bears_channels_last

AT_ONCE, BATCH = 32, 16  # images answered at once; images per step
START_C = 10.0  # of the logistic regression that the head starts from
HEAD_LR = 1e-3


class TunedHead(nn.Module):
    """A linear classifier that starts where logistic regression ended; logits times `sharpness`."""

    sharpness: Tensor

    def __init__(self, start: LinearHead) -> None:
        super().__init__()
        self.weight = nn.Parameter(start.weight.clone())
        self.bias = nn.Parameter(start.bias - start.weight @ start.centre)
        self.register_buffer("sharpness", torch.ones(()))

    def forward(self, features: Tensor) -> Tensor:
        """Give logits (N, classes)."""
        return self.sharpness * linear(features, self.weight, self.bias)


class TunedNetwork(nn.Sequential):
    """A network that gives features, and its head; `moved` parameters of the first are not those it came with."""

    moved: int = 0


def moved_parameters(network: nn.Module, method: str) -> dict[str, nn.Parameter]:
    """Parameters that a method moves: of `norm` norms and biases, of `activation` and `lora` what they put in, or all.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    >>> list(moved_parameters(network, "norm")), len(moved_parameters(network, "full"))
    (['0.bias', '1.weight', '1.bias'], 4)
    """
    if method == "activation":
        return activation_parameters(network)
    named = dict(network.named_parameters())
    if method == "full":
        return named
    if method == "lora":
        return {name: parameter for name, parameter in named.items() if MARK in name}
    return {name: named[name] for name in named if name in norm_parameters(network)}


@dataclass(frozen=True, eq=False)
class Tuner:
    """Tunes copies of a network.

    Attributes:
        body: gives features; it is left as it is
        activation: what the activations are swapped for where these are what moves
        epochs: passes over the images
        seed: of the order of the images
    """

    body: FeatureNetwork
    activation: str
    epochs: int
    seed: int
    _started: dict[str, FeatureNetwork] = field(default_factory=dict)

    def start(self, method: str, x: Tensor) -> FeatureNetwork:
        """Copy the network, frozen, with what moves put in: other activations, or adapters; for both it sees `x`."""
        if method not in self._started:
            made = copy.deepcopy(self.body).requires_grad_(False).eval()
            if method == "activation":
                swap(made.network, self.activation, preserve=True, example=x)
            if method == "lora":
                add_adapters(made, x, seed=self.seed)
            if bears_channels_last(made, x):  # CPUs train it in two thirds of the time
                made.to(memory_format=torch.channels_last)
            self._started[method] = made.eval()
        return copy.deepcopy(self._started[method])

    def tune(self, images: ImageSet, classes: int, *, method: str, lr: float) -> TunedNetwork:
        """Fit head and network to labelled images.

        Args:
            images: labelled images of the size that the network takes.
            classes: number of classes.
            method: what moves besides the head, as in `moved_parameters`.
            lr: learning rate of what moves, which falls to zero along a cosine; that of the head is `HEAD_LR`.

        Returns:
            The network with its head, in evaluation mode.
        """
        features = self.start(method, images.pixels(torch.arange(min(2, len(images)), device=images.device)))
        head = TunedHead(LinearHead(answer(features, images), images.labels.cpu(), classes, START_C))
        network = TunedNetwork(OrderedDict(features=features, head=head.to(images.device))).eval()
        moved = list(moved_parameters(features.network, method).values())
        groups = [(moved, lr), (list(head.parameters()), HEAD_LR)]
        for parameters, _ in groups:
            for parameter in parameters:
                parameter.requires_grad_(True)
        optimizer = torch.optim.AdamW([{"params": some, "lr": rate} for some, rate in groups], weight_decay=0.0)
        batches = Batches(images, min(BATCH, len(images)), generator(self.seed, "tuning"))
        total = self.epochs * len(batches)
        schedule = LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * min(step, total) / total)) / 2)
        with torch.enable_grad():
            for _ in range(self.epochs):
                for pixels, labels in batches:
                    optimizer.zero_grad(set_to_none=True)
                    cross_entropy(network(pixels), labels).backward()
                    optimizer.step()
                    schedule.step()
        network.moved = sum(one.numel() for one in moved if one.grad is not None)  # not the classifier it came with
        if method == "lora":
            merge_adapters(features.network)
        return network.requires_grad_(False)


@torch.no_grad()
def answer(network: nn.Module, images: ImageSet) -> Tensor:
    """Give the output for images on the CPU, some at a time."""
    numbers = torch.arange(len(images), device=images.device)
    return torch.cat([network(images.pixels(chunk)).cpu() for chunk in numbers.split(AT_ONCE)])
