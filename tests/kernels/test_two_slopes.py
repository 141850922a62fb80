"""The formula by hand, and the blocked path against the formula differentiated by autograd."""

import math

import pytest
import torch
from torch import Tensor

from arelu_meta.kernels.two_slopes import BLOCK, WORTHWHILE, TwoSlopes, two_slopes

SHAPES = [(WORTHWHILE,), (BLOCK + 7,), (2, 5, 130, 131)]  # one block, a rest beside a block, a feature map


def test_by_hand():
    out = two_slopes(torch.tensor([-2.0, -0.0, 0.0, 2.0]), 0.5, 3.0)
    assert out.tolist() == [-1.0, 0.0, 0.0, 6.0]


def test_slopes_as_tensors_or_numbers():
    x = torch.linspace(-1, 1, 5)
    assert torch.equal(two_slopes(x, torch.tensor(0.5), torch.tensor(3.0)), two_slopes(x, 0.5, 3.0))


def test_takes_the_type_of_x():
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        assert two_slopes(torch.ones(2, dtype=dtype), torch.tensor(0.5), torch.tensor(2.0)).dtype == dtype


def test_an_infinite_x_spoils_only_its_own_side():
    """Choosing the slope first: where(x < 0, a x, b x) would give the other slope 0 * inf = NaN."""
    negative, positive = (torch.tensor(value, requires_grad=True) for value in (0.5, 2.0))
    two_slopes(torch.tensor([-math.inf, 3.0]), negative, positive).sum().backward()
    assert negative.grad.item() == -math.inf
    assert positive.grad.item() == 3.0


def test_nan_passes_through():
    assert two_slopes(torch.tensor([math.nan]), 0.0, 0.0).isnan().all()


def slopes(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return tuple(torch.tensor(value, dtype=dtype, requires_grad=True) for value in (0.9, 1.88))


def formula(x: Tensor, negative: Tensor, positive: Tensor) -> Tensor:
    return torch.where(x < 0, negative, positive) * x


def large(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x.view(-1)[::1000] = 0.0
    return x.requires_grad_()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_value_and_gradients_are_the_formulas(shape, dtype, bound):
    x, given = large(shape, dtype), torch.randn(shape, dtype=dtype)
    negative, positive = slopes(dtype)
    out = two_slopes(x, negative, positive)
    assert isinstance(out.grad_fn, TwoSlopes._backward_cls)
    wanted = formula(x, negative, positive)
    torch.testing.assert_close(out, wanted, rtol=bound, atol=0)
    ours = torch.autograd.grad(out, (x, negative, positive), given)
    theirs = torch.autograd.grad(wanted, (x, negative, positive), given)
    torch.testing.assert_close(ours[0], theirs[0], rtol=bound, atol=0)
    scale = (given * x).abs().sum().item()  # the sums are of numbers of both signs
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        assert abs(one.item() - other.item()) <= bound * scale


@pytest.mark.parametrize("given_last", [True, False])
def test_channels_last_keeps_its_order(given_last):
    x = large(SHAPES[-1]).detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    given = torch.randn_like(x)
    negative, positive = slopes(torch.float64)
    out = two_slopes(x, negative, positive)
    assert out.is_contiguous(memory_format=torch.channels_last)
    (ours,) = torch.autograd.grad(out, x, given if given_last else given.contiguous())
    torch.testing.assert_close(ours, given * torch.where(x < 0, 0.9, 1.88))


def test_the_gradient_at_zero_is_the_positive_slope():
    x = torch.zeros(WORTHWHILE, requires_grad=True)
    two_slopes(x, torch.tensor(0.5), torch.tensor(3.0)).sum().backward()
    assert x.grad.eq(3.0).all()


def test_an_infinite_x_spoils_only_its_own_side_in_blocks():
    x = torch.full((WORTHWHILE,), 3.0)
    x[5] = -math.inf
    negative, positive = (torch.tensor(value, requires_grad=True) for value in (0.5, 2.0))
    two_slopes(x, negative, positive).sum().backward()
    assert negative.grad.item() == -math.inf
    assert positive.grad.item() == 3.0 * (WORTHWHILE - 1)


def test_second_derivatives_by_hand():
    """d/dx of the slope's gradient: with g constant, d(sum g x over x < 0)/dx = g below zero and nothing above."""
    x, (negative, positive) = large((WORTHWHILE,)), slopes(torch.float64)
    (to_negative,) = torch.autograd.grad(two_slopes(x, negative, positive).sum(), negative, create_graph=True)
    (again,) = torch.autograd.grad(to_negative, x)
    assert torch.equal(again, (x < 0).double())


def test_only_x_is_saved():
    x, (negative, positive) = large((WORTHWHILE,)), slopes(torch.float64)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda kept: kept):
        two_slopes(x, negative, positive)
    assert sum(tensor.numel() for tensor in saved) == x.numel() + 2


def test_under_vmap_every_episode_has_its_own_slope():
    x = torch.randn(3, WORTHWHILE, dtype=torch.float64)
    negative = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    out = torch.vmap(lambda row, slope: two_slopes(row, slope, 2.0))(x, negative)
    torch.testing.assert_close(out, torch.where(x < 0, negative[:, None], 2.0) * x)


def test_without_a_gradient_every_episode_has_the_numbers_of_the_formula():
    x = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))
    x[:, :4] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0])
    negative, positive = torch.tensor([0.3, -0.2, 0.0]), torch.tensor([1.7, 1.1, 0.9])
    with torch.no_grad():
        ours = torch.vmap(two_slopes)(x, negative, positive)
    formula = x * torch.where(x < 0, negative[:, None], positive[:, None])
    assert torch.equal(ours.nan_to_num(7.5), formula.nan_to_num(7.5))


def test_other_cases_go_by_the_formula():
    small, strided = torch.randn(4, requires_grad=True), torch.randn(WORTHWHILE, 2, requires_grad=True)[:, 0]
    half = torch.randn(WORTHWHILE, dtype=torch.bfloat16, requires_grad=True)
    for x in (small, strided, half):
        out = two_slopes(x, 0.5, 2.0)
        assert not isinstance(out.grad_fn, TwoSlopes._backward_cls)
        assert torch.equal(out, torch.where(x < 0, 0.5, 2.0).to(x.dtype) * x)
    minus = two_slopes(torch.ones(WORTHWHILE, requires_grad=True), 0.5, -1.0)
    assert minus.eq(-1).all()
