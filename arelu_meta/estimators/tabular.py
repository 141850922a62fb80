"""A small network for rows of numbers, adapted from a seeded start: what `FewShotClassifier` is without a model."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import activations
from arelu_meta.activations import Activation
from arelu_meta.backbones.widths import input_multiple
from arelu_meta.errors import DivergedError
from arelu_meta.seeding import global_stream


@dataclass(frozen=True, eq=False)
class AdaptedTabular:
    """A network adapted to one support set of rows, with the support's mean and scale of each column."""

    network: nn.Module
    mean: Tensor
    scale: Tensor

    @torch.no_grad()
    def probabilities(self, query_x: Tensor) -> Tensor:
        """Answer queries, (queries, columns), with probabilities, (queries, ways)."""
        return self.network((query_x - self.mean) / self.scale).softmax(-1)


def tabular_network(columns: int, ways: int, *, activation: Activation, hidden: int, seed: int) -> nn.Sequential:
    """One hidden layer, (N, columns) -> (N, ways), in float64; the seed alone decides its start."""
    with global_stream(seed, "weights"):
        act = activations.build(activation)
        network = nn.Sequential(nn.Linear(columns, hidden * input_multiple(act)), act, nn.Linear(hidden, ways))
    return network.double().eval()  # random slopes (RReLU) at their mean, as in tests


def adapt_tabular(
    support_x: Tensor,
    support_y: Tensor,
    *,
    ways: int,
    activation: Activation = "arelu",
    hidden: int = 64,
    steps: int = 200,
    lr: float = 0.01,
    seed: int = 0,
) -> AdaptedTabular:
    """Standardise the columns, start from the seed, take full-batch steps of Adam on the cross-entropy of the support.

    Shapes: (N, columns) float64 and (N,) with labels 0..ways-1. A constant column is centred and not scaled.
    """
    deviation, mean = torch.std_mean(support_x, dim=0, correction=0)
    scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    rows = (support_x - mean) / scale
    network = tabular_network(support_x.shape[1], ways, activation=activation, hidden=hidden, seed=seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    with torch.enable_grad():
        for step in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(network(rows), support_y)
            if not torch.isfinite(loss):
                raise DivergedError(f"the support loss is {loss.item()} at step {step}; lower lr ({lr:g})")
            loss.backward()
            optimizer.step()
    return AdaptedTabular(network.requires_grad_(False), mean, scale)
