"""`two_slopes`: the piecewise linear function that AReLU, ELSA, PReLU and the controls have in common."""

import torch
from torch import Tensor

from arelu_meta.kernels.two_slopes_blocked import TwoSlopes, can_be_blocked


def two_slopes(x: Tensor, negative: Tensor | float, positive: Tensor | float) -> Tensor:
    """Multiply by `negative` below zero and by `positive` from zero on; NaN passes through.

    The slopes are chosen first and multiplied once, so that an infinite x on one side leaves the other side's slope a
    finite gradient. They take the type of x: scalars learned in float32 do not widen a bfloat16 feature map.

    >>> two_slopes(torch.tensor([-2.0, 0.0, 2.0]), 0.5, 3.0)
    tensor([-1., 0., 6.])
    """
    negative, positive = _like(negative, x), _like(positive, x)
    if can_be_blocked(x, negative, positive):
        return TwoSlopes.apply(x, negative, positive)
    return x * torch.where(x < 0, negative, positive)


def _like(slope: Tensor | float, x: Tensor) -> Tensor:
    if isinstance(slope, Tensor):
        return slope.to(x.dtype)
    return torch.tensor(slope, dtype=x.dtype, device=x.device)
