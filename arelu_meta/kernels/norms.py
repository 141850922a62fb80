"""torch's norms in operations that are exact in every order.

torch 2.15 differentiates some wrongly in second order, because the gradient takes what the forward pass saved for
constants: weight norm its norm, always; batch, layer and instance norm their mean and deviation, under `vmap`. These
take the arguments of torch's functions, and give None where torch has an error to raise. Running statistics are read
where torch would use them, and never updated. Half precision is computed in float32.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from arelu_meta.kernels.standardise import Standardise, standardise


def batch_norm(
    input: Tensor,  # noqa: A002  (torch's name for it)
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """Normalise each channel of (N, C, ...) over the batch and the plane, or with running statistics."""
    del momentum  # of running statistics
    by_channel = (running_mean, running_var, weight, bias)
    if input.dim() < 2 or any(each is not None and each.shape != input.shape[1:2] for each in by_channel):
        return None
    x, shape = _wide(input), [-1, *(1 for _ in input.shape[2:])]
    if training or running_mean is None or running_var is None:
        weight = x.new_ones(x.shape[1]) if weight is None else weight.to(x.dtype)
        result = standardise(x, weight, torch.zeros_like(weight) if bias is None else bias.to(x.dtype), eps)
    else:
        scale = torch.rsqrt(running_var + eps)
        result = _affine((x - running_mean.view(shape)) * scale.view(shape), weight, bias, shape)
    return result.to(input.dtype)


def instance_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """Normalise each channel of each image of (N, C, ...) over its plane, or with running statistics."""
    if not use_input_stats and running_mean is not None and running_var is not None:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    refused = any(each is not None and each.shape != input.shape[1:2] for each in (weight, bias))
    if refused or not use_input_stats or input.shape[2:].numel() == 1:
        return None
    axes = tuple(range(2 - input.dim(), 0))
    return _affine(_standard(_wide(input), axes, eps), weight, bias, [-1, *(1 for _ in axes)]).to(input.dtype)


def layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """Normalise over the last axes, those of `normalized_shape`."""
    shape = torch.Size(normalized_shape)
    shapes = [input.shape[-len(shape) :], *(each.shape for each in (weight, bias) if each is not None)]
    if any(each != shape for each in shapes):
        return None
    axes = tuple(range(-len(shape), 0))
    return _affine(_standard(_wide(input), axes, eps), weight, bias, shape).to(input.dtype)


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Give each slice of v along `dim` the length g; all of it at once where `dim` is -1."""
    axes = [axis for axis in range(v.dim()) if axis != dim or dim == -1]
    return v * (g / torch.linalg.vector_norm(v, dim=axes, keepdim=True))


def _wide(x: Tensor) -> Tensor:
    """Squares and sums of half precision overflow, or lose what they are about."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _standard(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """Give x mean 0 and variance 1 over axes, counted from the last."""
    one = x.new_ones(())
    return Standardise.apply(x, one.expand([1] * x.dim()), torch.zeros_like(one).expand([1] * x.dim()), axes, eps)[0]


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]) -> Tensor:
    if weight is not None:
        x = x * weight.view(shape)
    return x if bias is None else x + bias.view(shape)
