import math

import torch

from arelu_meta.kernels.two_slopes import two_slopes


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
