"""The inner loop: gradient steps as a pure function of parameters. No cloned modules, no patching."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.func import grad

Parameters: TypeAlias = dict[str, Tensor]
InnerOptimizer = Literal["sgd", "adam"]


@dataclass(frozen=True, eq=False)
class InnerRule:
    """How an episode is adapted to: which parameters move, how far, how often, and what the outer step may see of it.

    `lr` is one rate, or learned rates by parameter name: (steps, ...) each, row s for step s, the last row for any
    later one.
    `moving` names the parameters that adapt (None: all). With `first_order` inner gradients are constants to the outer
    step.
    `clip_norm` bounds the norm of all inner gradients together.
    """

    lr: float | Mapping[str, Tensor]
    steps: int
    first_order: bool = False
    moving: frozenset[str] | None = None
    clip_norm: float | None = None
    optimizer: InnerOptimizer = "sgd"

    def moves(self, name: str) -> bool:
        """Tell whether a parameter adapts."""
        return self.moving is None or name in self.moving

    def rate(self, name: str, step: int) -> Tensor | float:
        """Give the learning rate of a parameter at a step."""
        if isinstance(self.lr, Mapping):
            rates = self.lr[name]
            return rates[min(step, len(rates) - 1)]
        return self.lr


def adapt(loss: Callable[[Parameters], Tensor], parameters: Parameters, rule: InnerRule) -> list[Parameters]:
    """Take gradient steps on `loss` and give the parameters before the first and after every step, `steps + 1` in all.

    The steps stay differentiable with respect to `parameters` and to learned rates.

    >>> path = adapt(lambda p: (2 * p["w"]) ** 2 / 2, {"w": torch.tensor(3.0)}, InnerRule(lr=0.1, steps=1))
    >>> round(path[-1]["w"].item(), 4)  # w - 0.1 * 4 w = 0.6 w
    1.8
    """
    path = [parameters]
    names = [name for name in parameters if rule.moves(name)]
    for step in range(rule.steps):
        current = path[-1]

        def moving_loss(moved: Parameters, fixed: Parameters = current) -> Tensor:
            return loss({**fixed, **moved})

        gradients = grad(moving_loss)({name: current[name] for name in names})
        if rule.first_order:
            gradients = {name: gradient.detach() for name, gradient in gradients.items()}
        if rule.clip_norm is not None:
            gradients = dict(zip(names, clipped([gradients[name] for name in names], rule.clip_norm), strict=True))
        path.append({**current, **{n: current[n] - rule.rate(n, step) * gradients[n] for n in names}})
    return path


def clipped(gradients: list[Tensor], norm: float) -> list[Tensor]:
    """Scale gradients down together so that their joint Euclidean norm is at most `norm`.

    >>> [g.item() for g in clipped([torch.tensor(3.0), torch.tensor(4.0)], 1.0)]
    [0.6000000238418579, 0.800000011920929]
    """
    total = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    # The square root of an exact zero has no gradient; there nothing is clipped anyway.
    scale = norm / torch.where(total > norm * norm, total, torch.full_like(total, norm * norm)).sqrt()
    return [gradient * scale for gradient in gradients]
