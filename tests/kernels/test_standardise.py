"""Batch statistics against the plain formula, to the second derivative, alone and over episodes."""

import pytest
import torch
from torch import Tensor

from arelu_meta.kernels.standardise import standardise

EPS = 1e-3


def formula(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    axes = [axis for axis in range(x.dim()) if axis != 1]
    shape = [1, -1, *(1 for _ in axes[1:])]
    centred = x - x.mean(axes, keepdim=True)
    variance = centred.square().mean(axes, keepdim=True)
    return weight.view(shape) * centred / (variance + EPS).sqrt() + bias.view(shape)


def ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return standardise(x, weight, bias, EPS)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 2, 5)], ids=["rows", "feature maps"])
def test_gradients_of_both_orders(shape: tuple[int, ...]):
    torch.manual_seed(0)
    inputs = drawn(*shape), drawn(3), drawn(3)
    torch.testing.assert_close(ours(*inputs), formula(*inputs))
    assert torch.autograd.gradcheck(ours, inputs)
    assert torch.autograd.gradgradcheck(ours, inputs)


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (0, None, None), (2, 1, None)], ids=str)
def test_over_episodes(in_dims: tuple[int | None, ...]):
    """Each episode has statistics of its own; weights and biases may be shared, and lie along any dimension."""
    torch.manual_seed(0)
    plain = [(4, 3, 2, 2), (3,), (3,)]
    inputs = [
        drawn(*(shape if dim is None else (*shape[:dim], 5, *shape[dim:])))
        for shape, dim in zip(plain, in_dims, strict=True)
    ]
    results = [torch.vmap(function, in_dims=in_dims)(*inputs) for function in (ours, formula)]
    torch.testing.assert_close(*results)
    first = [torch.autograd.grad(out.pow(3).sum(), inputs, create_graph=True) for out in results]
    for one, other in zip(*first, strict=True):
        torch.testing.assert_close(one, other)
    second = [torch.autograd.grad(sum(g.square().sum() for g in gradients), inputs) for gradients in first]
    for one, other in zip(*second, strict=True):
        torch.testing.assert_close(one, other)
