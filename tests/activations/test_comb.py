import math

import pytest
import torch
from torch import nn

from arelu_meta.activations.comb import Comb, CombPaper, comb

X = torch.linspace(-3, 3, 13, dtype=torch.float64)


def test_by_hand():
    """Shares 0.5, 0.3 and the rest 0.2: 0.5 x + 0.3 relu(x) + 0.2 tanh(x)."""
    out = comb(torch.tensor([-1.0, 2.0]).double(), torch.tensor([0.5, 0.3]).double())
    expected = (-0.5 - 0.2 * math.tanh(1), 1.6 + 0.2 * math.tanh(2))
    assert torch.allclose(out, torch.tensor(expected).double(), rtol=1e-6)


def test_weights_sum_to_one_wherever_the_shares_are():
    """At large x, tanh is 1 and the rest x: f(x) - f(x - 1) = s_1 + s_2, and the third weight is 1 - s_1 - s_2."""
    shares = torch.tensor([0.9, -0.4], dtype=torch.float64)
    x = torch.tensor([50.0, 51.0], dtype=torch.float64)
    out = comb(x, shares)
    assert math.isclose(out[1] - out[0], 0.5, rel_tol=1e-12)
    assert math.isclose(out[0] - 0.5 * 50, 0.5, rel_tol=1e-12)


def test_starts_with_equal_weights():
    x = torch.linspace(-2, 2, 9)
    assert torch.allclose(Comb()(x), (x + torch.relu(x) + torch.tanh(x)) / 3, atol=1e-6)


@pytest.mark.parametrize("slope", [0.0, 0.25, -1.5])
def test_the_authors_version_is_prelu_with_the_same_slope(slope: float):
    mixed, prelu = CombPaper().double(), nn.PReLU(init=slope).double()
    with torch.no_grad():
        mixed.share.fill_(slope)
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    out, expected = mixed(x), prelu(y)
    assert torch.equal(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert torch.allclose(mixed.share.grad, prelu.weight.grad[0], rtol=1e-14)
    away = X != 0  # at 0 the two count the point to different sides
    assert torch.equal(x.grad[away], y.grad[away])


def test_the_authors_version_starts_as_relu():
    assert torch.equal(CombPaper().double()(X), torch.relu(X))
