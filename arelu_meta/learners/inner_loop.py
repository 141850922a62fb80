"""The inner loop: gradient steps as a pure function of parameters, and the query pass after them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad

from arelu_meta.backbones.norm import statistics_from, uses_support_statistics
from arelu_meta.errors import InputError, unknown
from arelu_meta.learners.functional_network import Parameters

InnerOptimizer = Literal["sgd", "adam"]
# Of logits (N, ways) and labels (N,), or of predictions (N, d) and real targets (N, d), to one number.
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss}
"""losses by name, which are computed for all episodes at once"""


def loss_by_name(name: str) -> Loss:
    """Give the loss of a name, or refuse one that there is none of."""
    if name not in LOSSES:
        raise unknown("loss", name, LOSSES)
    return LOSSES[name]


@dataclass(frozen=True, eq=False)
class InnerRule:
    """How a network adapts to an episode, and what the outer step may differentiate through.

    Args:
        lr: one learning rate, or learned rates by parameter name: (steps, ...) each, row s for step s, the last row for
            any later one.
        steps: gradient steps.
        first_order: whether inner gradients are constants to the outer step.
        moving: names of the parameters that adapt; None: all. Parts ("head", "body", ...) become names with the first
            episode that a learner sees.
        clip_norm: bound on the joint Euclidean norm of the inner gradients; None: no bound.
        optimizer: "sgd", or "adam" on the engine `higher`.
        loss: of the support set, from logits (N, ways) and labels (N,), or from predictions and real targets (N, d).
        start: parameters of each episode, (episodes, ...) by name, instead of those that all share; learned rates have
            that axis too then. Only for engines that compute all episodes at once.
    """

    lr: float | Mapping[str, Tensor]
    steps: int
    first_order: bool = False
    moving: frozenset[str] | str | None = None
    clip_norm: float | None = None
    optimizer: InnerOptimizer = "sgd"
    loss: Loss = F.cross_entropy
    start: Parameters | None = None

    def moves(self, name: str) -> bool:
        """Tell whether a parameter adapts."""
        if isinstance(self.moving, str):
            raise InputError(f"which parameters are {self.moving!r} is not known yet; call `prepare` of the learner")
        return self.moving is None or name in self.moving

    def rate(self, name: str, step: int) -> Tensor | float:
        """Give the learning rate of a parameter at a step."""
        if isinstance(self.lr, Mapping):
            rates = self.lr[name]
            return rates[min(step, len(rates) - 1)]
        return self.lr


def transformed_gradients(loss: Callable[[Parameters], Tensor], moving: Parameters) -> Parameters:
    """Gradients by `torch.func.grad`, which can be vectorised over episodes."""
    return grad(loss)(moving)


def graph_gradients(
    loss: Callable[[Parameters], Tensor], moving: Parameters, *, first_order: bool = False
) -> Parameters:
    """Gradients by `torch.autograd.grad`, which takes any code: branches on values, old autograd functions."""
    if not moving:
        return {}
    tracked = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, because hooks on parameters are for the outer gradient.
        points = {
            n: p.view_as(p) if tracked and p.requires_grad else p.detach().requires_grad_() for n, p in moving.items()
        }
        twice = tracked and not first_order
        found = torch.autograd.grad(
            loss(points), list(points.values()), create_graph=twice, allow_unused=True, materialize_grads=True
        )
    return dict(zip(points, found, strict=True))


def adapt(
    loss: Callable[[Parameters], Tensor],
    parameters: Parameters,
    rule: InnerRule,
    *,
    gradients_of: Callable[[Callable[[Parameters], Tensor], Parameters], Parameters] = transformed_gradients,
) -> list[Parameters]:
    """Take gradient steps on any loss, differentiable with respect to `parameters` and to learned rates.

    Args:
        loss: a function of parameters by name that returns one number.
        parameters: where to start, by name.
        rule: learning rate, number of steps, and which parameters move.
        gradients_of: gives the gradients of a loss by parameter.

    Returns:
        The parameters before the first and after every step, `rule.steps + 1` dictionaries.

    >>> path = adapt(lambda p: (2 * p["w"]) ** 2 / 2, {"w": torch.tensor(3.0)}, InnerRule(lr=0.1, steps=1))
    >>> round(path[-1]["w"].item(), 4)  # w - 0.1 * 4 w = 0.6 w
    1.8
    """
    path = [parameters]
    names = [name for name in parameters if rule.moves(name)]
    for step in range(rule.steps):
        current = path[-1]
        gradients = gradients_of(lambda moving: loss({**path[-1], **moving}), {name: current[name] for name in names})
        if rule.first_order:
            gradients = {name: gradient.detach() for name, gradient in gradients.items()}
        if rule.clip_norm is not None:
            gradients = dict(zip(names, clipped([gradients[name] for name in names], rule.clip_norm), strict=True))
        path.append({**current, **{n: current[n] - rule.rate(n, step) * gradients[n] for n in names}})
    return path


def clipped(gradients: list[Tensor], norm: float) -> list[Tensor]:
    """Scale gradients down together so that their joint Euclidean norm is at most `norm`.

    >>> [round(g.item(), 4) for g in clipped([torch.tensor(3.0), torch.tensor(4.0)], 1.0)]
    [0.6, 0.8]
    """
    total = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    # The square root of an exact zero has no gradient; there nothing is clipped anyway.
    scale = norm / torch.where(total > norm * norm, total, torch.full_like(total, norm * norm)).sqrt()
    return [gradient * scale for gradient in gradients]


def query_pass(forward: Callable[[Tensor], Tensor], network: nn.Module, support_x: Tensor, query_x: Tensor) -> Tensor:
    """Run the query through an adapted network; norms that take their statistics from the support see it as well.

    Args:
        forward: the adapted network, images (N, C, H, W) to logits (N, ways).
        network: the network it was made from, which knows its norms.
        support_x: support images, (supports, C, H, W).
        query_x: query images, (queries, C, H, W).

    Returns:
        Logits of the query, (queries, ways).
    """
    if not uses_support_statistics(network):
        return forward(query_x)
    with statistics_from(len(support_x)):
        return forward(torch.cat([support_x, query_x]))[len(support_x) :]


def episode_losses(logits: Tensor, labels: Tensor, loss: Loss = F.cross_entropy) -> Tensor:
    """Loss of each episode.

    Args:
        logits: (episodes, queries, ways), or predictions (episodes, queries, d).
        labels: (episodes, queries), or real targets (episodes, queries, d).
        loss: of what one episode has of both.

    Returns:
        One number for each episode, (episodes,).
    """
    if loss is F.cross_entropy:
        return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)
    if loss is F.mse_loss:
        return F.mse_loss(logits, labels, reduction="none").mean((1, 2))
    return torch.stack([loss(*episode) for episode in zip(logits, labels, strict=True)])
