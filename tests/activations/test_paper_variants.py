"""The authors' versions degenerate: Maxout is the identity, SLAF affine, Comb PReLU."""

import pytest
import torch
from torch import nn

from arelu_meta import activations

X = torch.linspace(-3, 3, 13, dtype=torch.float64)


def test_maxout_is_the_identity():
    assert torch.equal(activations.build("maxout_paper")(X), X)


def test_slaf_starts_at_one_plus_x_and_stays_affine():
    module = activations.build("slaf_paper").double()
    assert torch.equal(module(X), 1 + X)
    with torch.no_grad():
        module.coefficients.copy_(torch.tensor([-0.3, 2.5]))
    second_difference = module(X).diff(n=2)
    assert second_difference.abs().max() < 1e-12


@pytest.mark.parametrize("slope", [0.0, 0.25, -1.5])
def test_comb_is_prelu_with_the_same_slope(slope: float):
    comb, prelu = activations.build("comb_paper").double(), nn.PReLU(init=slope).double()
    with torch.no_grad():
        comb.share.fill_(slope)
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    out, expected = comb(x), prelu(y)
    assert torch.equal(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert torch.allclose(comb.share.grad, prelu.weight.grad[0], rtol=1e-14)
    away = X != 0  # at 0 the two count the point to different sides
    assert torch.equal(x.grad[away], y.grad[away])


def test_comb_starts_as_relu():
    assert torch.equal(activations.build("comb_paper").double()(X), torch.relu(X))
