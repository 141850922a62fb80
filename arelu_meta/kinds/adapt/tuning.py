"""Methods that move the network itself, from a head that fits already: norms and biases, activations, or all of it.

The head starts as logistic regression on the features of the start (Kumar et al. 2022), and a few epochs of AdamW move
it with what the method says. Running statistics of batch norms stay as the weights have them.
"""

import copy
import math
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.optim.lr_scheduler import LambdaLR

from arelu_meta.activations.parameters import activation_parameters
from arelu_meta.backbones.features import FeatureNetwork
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.learners.frozen_heads import LinearHead
from arelu_meta.learners.moving import norm_parameters
from arelu_meta.seeding import generator
from arelu_meta.surgery import swap

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


def moved_parameters(network: nn.Module, method: str) -> dict[str, nn.Parameter]:
    """Parameters of a network that a method moves: of `norm` norms and biases, of `activation` activations, or all.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    >>> list(moved_parameters(network, "norm")), len(moved_parameters(network, "full"))
    (['0.bias', '1.weight', '1.bias'], 4)
    """
    if method == "activation":
        return activation_parameters(network)
    named = dict(network.named_parameters())
    if method == "full":
        return named
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

    def start(self, method: str) -> FeatureNetwork:
        """Copy the network, frozen, with its activations swapped where they are what moves."""
        copied = copy.deepcopy(self.body).requires_grad_(False)
        if method == "activation":
            swap(copied.network, self.activation, preserve=True)
        return copied.eval()

    def tune(self, images: ImageSet, classes: int, *, method: str, lr: float) -> nn.Module:
        """Fit head and network to labelled images.

        Args:
            images: labelled images of the size that the network takes.
            classes: number of classes.
            method: what moves besides the head, as in `moved_parameters`.
            lr: learning rate of what moves, which falls to zero along a cosine; that of the head is `HEAD_LR`.

        Returns:
            The network with its head, in evaluation mode.
        """
        features = self.start(method)
        head = TunedHead(LinearHead(answer(features, images), images.labels.cpu(), classes, START_C))
        network = nn.Sequential(OrderedDict(features=features, head=head.to(images.device))).eval()
        groups = [(list(moved_parameters(features.network, method).values()), lr), (list(head.parameters()), HEAD_LR)]
        for parameters, _ in groups:
            for parameter in parameters:
                parameter.requires_grad_(True)
        optimizer = torch.optim.AdamW([{"params": moved, "lr": rate} for moved, rate in groups], weight_decay=0.0)
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
        return network.requires_grad_(False)


@torch.no_grad()
def answer(network: nn.Module, images: ImageSet) -> Tensor:
    """Give the output for images on the CPU, some at a time."""
    numbers = torch.arange(len(images), device=images.device)
    return torch.cat([network(images.pixels(chunk)).cpu() for chunk in numbers.split(AT_ONCE)])
