"""Batch statistics in few passes over a feature map, twice differentiable, and right under `vmap`."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from arelu_meta.kernels.convolution import episodes_first


def standardise(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Give each channel of x the mean `bias` and the spread `weight`, over the batch and the plane.

    Args:
        x: feature maps, (N, C, ...).
        weight: spread of each channel, (C,).
        bias: mean of each channel, (C,).
        eps: added to the variance.

    Returns:
        A tensor of the shape of x.

    >>> standardise(torch.tensor([[1.0], [3.0]]), torch.ones(1), torch.zeros(1), 0.0).round(decimals=4).tolist()
    [[-1.0], [1.0]]
    """
    shape = [-1, *(1 for _ in x.shape[2:])]
    axes = (-x.dim(), *range(2 - x.dim(), 0))
    return Standardise.apply(x, weight.view(1, *shape), bias.view(1, *shape), axes, eps)[0]


class Standardise(Function):
    """weight * c / sqrt(mean of c^2 + eps) + bias with c = x - mean of x; and c, and that 1 / sqrt.

    Means are taken over axes, counted from the last. The gradient is linear in c and in what comes in: half the passes
    over the feature map that the formula's own gradient takes.
    """

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, axes: tuple[int, ...], eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Centre, then scale."""
        centred = x - x.mean(axes, keepdim=True)
        variance = centred.square().mean(axes, keepdim=True)  # two passes take less time than `vector_norm`
        inverse = torch.rsqrt(variance + eps)
        return torch.addcmul(bias, centred, weight * inverse), centred, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        """What is kept is an output too, so that its dependence on x is known when gradients are differentiated."""
        _, weight, _, ctx.axes, _ = inputs
        _, centred, inverse = output
        ctx.save_for_backward(centred, weight, inverse)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, of_result: Tensor | None, of_centred: Tensor | None, of_inverse: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        """With r = 1 / sqrt(v + eps) and n = `count` numbers in a channel: dr/dx = -r^3 c / n, and c sums to zero."""
        centred, weight, inverse = ctx.saved_tensors
        axes = ctx.axes
        count = math.prod(centred.shape[axis] for axis in axes)
        to_weight = to_bias = None
        mean, pull = torch.zeros_like(inverse), torch.zeros_like(inverse)
        if of_inverse is not None:
            pull = pull + of_inverse
        if of_result is not None:
            along = (of_result * centred).sum(axes, keepdim=True)
            to_weight, to_bias = inverse * along, of_result.sum(axes, keepdim=True)
            pull, mean = pull + weight * along, weight * inverse * to_bias / count
        if of_centred is not None:
            mean = mean + of_centred.mean(axes, keepdim=True)
        to_x = torch.addcmul(-mean, centred, pull * inverse**3 / -count)
        if of_result is not None:
            to_x = torch.addcmul(to_x, of_result, weight * inverse)
        return to_x if of_centred is None else to_x + of_centred, to_weight, to_bias, None, None

    @staticmethod
    def vmap(
        _info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        axes: tuple[int, ...],
        eps: float,
    ) -> tuple[Any, tuple[int, int, int]]:
        """Leading dimensions pass through, the one over episodes among them."""
        return Standardise.apply(*episodes_first(in_dims, x, weight, bias), axes, eps), (0, 0, 0)
