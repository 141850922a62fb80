"""AReLU against the paper's formulas, worked out by hand.

With s = sigmoid(beta) and C(alpha) = min(max(alpha, 0.01), 0.99), section 3 of arXiv 2006.13858 has

    f(x)       = C(alpha) x  for x < 0,   (1 + s) x  for x >= 0
    df/dx      = C(alpha)    for x < 0,    1 + s     for x >= 0
    df/dalpha  = sum of x over x < 0, if 0.01 < alpha < 0.99, else 0
    df/dbeta   = s (1 - s) times the sum of x over x >= 0

All cases here have beta = ln 3, where s = 3/4 and s (1 - s) = 3/16, and x = (-4, -1, 0, 2, 6).
"""

import math
import shutil
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from arelu_meta import activations
from arelu_meta.activations.arelu import AReLU, arelu, bounded_alpha, raw_alpha
from arelu_meta.errors import InputError

X = (-4.0, -1.0, 0.0, 2.0, 6.0)
BETA = math.log(3)


def case(alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (X, alpha, BETA))


def close(tensor: Tensor, expected) -> bool:
    return torch.allclose(tensor, torch.tensor(expected, dtype=tensor.dtype), rtol=1e-12, atol=1e-14)


def test_value():
    """C = 0.5: -4 -> -2, -1 -> -0.5, 0 -> 0, 2 -> 7/4 * 2 = 3.5, 6 -> 10.5."""
    assert close(arelu(*case(0.5)), (-2.0, -0.5, 0.0, 3.5, 10.5))


def test_start_of_the_module():
    """alpha = 0.9, beta = 2: slopes 0.9 and 1 + 1 / (1 + e^-2) = 1.8807970779778824."""
    out = AReLU().double()(torch.tensor([-1.0, 1.0], dtype=torch.float64))
    assert torch.allclose(out, torch.tensor([-0.9, 1 + 1 / (1 + math.exp(-2))], dtype=torch.float64), rtol=1e-7)


def test_gradients():
    """Of the sum over x, at alpha = 0.5: dx = (1/2, 1/2, 7/4, 7/4, 7/4), dalpha = -4 - 1, dbeta = 3/16 (0 + 2 + 6)."""
    x, alpha, beta = case(0.5)
    arelu(x, alpha, beta).sum().backward()
    assert close(x.grad, (0.5, 0.5, 1.75, 1.75, 1.75))
    assert close(alpha.grad, -5.0)
    assert close(beta.grad, float(Fraction(3, 16) * 8))


def test_gradient_at_zero_is_the_positive_slope():
    """x = 0 belongs to the positive side: 1 + s = 7/4, not C(alpha) and not their mean."""
    _, alpha, beta = case(0.5)
    slope = grad(lambda x: arelu(x, alpha, beta))(torch.tensor(0.0, dtype=torch.float64))
    assert close(slope, 1.75)


def test_second_gradients():
    """f is linear in x on each side; d2f/dx dalpha = 1 for x < 0, d2f/dx dbeta = 3/16 for x >= 0, and
    d2f/dbeta2 = s (1 - s) (1 - 2 s) sum of positive x = 3/16 * -1/2 * 8.
    """
    x, alpha, beta = case(0.5)
    dx, dbeta = torch.autograd.grad(arelu(x, alpha, beta).sum(), (x, beta), create_graph=True)
    assert close(torch.autograd.grad(dx[:2].sum(), alpha, retain_graph=True)[0], 2.0)
    assert close(torch.autograd.grad(dx[2:].sum(), beta, retain_graph=True)[0], 3 * 3 / 16)
    assert close(torch.autograd.grad(dbeta, beta)[0], float(Fraction(3, 16) * Fraction(-1, 2) * 8))


@pytest.mark.parametrize(("alpha", "slope"), [(-0.3, 0.01), (0.005, 0.01), (1.2, 0.99), (0.995, 0.99)])
def test_alpha_outside_its_interval(alpha: float, slope: float):
    """The slope is that of the near end, and alpha gets no gradient: it cannot come back."""
    x, raw, beta = case(alpha)
    arelu(x, raw, beta).sum().backward()
    assert close(x.grad[:2], (slope, slope))
    assert raw.grad.item() == 0.0
    assert close(beta.grad, 1.5)


@pytest.mark.parametrize(("alpha", "slope"), [(-0.3, 0.01), (0.5, 0.5), (1.2, 0.99)])
def test_straight_through_keeps_alpha_alive(alpha: float, slope: float):
    """The values of the hard clamp, the gradient of none: -4 - 1 everywhere."""
    module = AReLU(alpha, BETA, clamp="straight_through").double()
    x = torch.tensor(X, dtype=torch.float64)
    out = module(x)
    assert torch.allclose(out[:2], slope * x[:2], rtol=1e-6)
    out.sum().backward()
    assert close(module.alpha.grad, -5.0)


@pytest.mark.parametrize("raw", [-3.0, 0.0, 4.0])
def test_sigmoid_keeps_alpha_alive(raw: float):
    """Slope 0.01 + 0.98 t with t = sigmoid(raw); its gradient 0.98 t (1 - t) times -5."""
    module = AReLU(clamp="sigmoid").double()
    nn.init.constant_(module.alpha, raw)
    x = torch.tensor(X, dtype=torch.float64)
    out = module(x)
    t = 1 / (1 + math.exp(-raw))
    assert torch.allclose(out[:2], (0.01 + 0.98 * t) * x[:2], rtol=1e-12)
    out.sum().backward()
    assert math.isclose(module.alpha.grad.item(), 0.98 * t * (1 - t) * -5, rel_tol=1e-12)


@pytest.mark.parametrize("clamp", ["hard", "straight_through", "sigmoid"])
def test_all_clamps_start_at_the_same_function(clamp: str):
    x = torch.tensor(X)
    assert torch.allclose(activations.build("arelu", clamp=clamp)(x), AReLU()(x), rtol=1e-6)


@pytest.mark.parametrize("clamp", ["hard", "straight_through", "sigmoid"])
def test_clamps_under_vmap_and_on_meta(clamp: str):
    module = AReLU(clamp=clamp).double()
    alphas = torch.tensor([-0.5, 0.3, 1.5], dtype=torch.float64)
    x = torch.tensor(X, dtype=torch.float64).expand(3, -1)
    together = torch.vmap(lambda alpha, x: functional_call(module, {"alpha": alpha}, (x,)))(alphas, x)
    alone = [functional_call(module, {"alpha": alpha}, (x[0],)) for alpha in alphas]
    assert torch.allclose(together, torch.stack(alone), rtol=1e-14)
    with torch.device("meta"):
        there = AReLU(clamp=clamp)
    assert there.alpha.is_meta
    assert there(torch.empty(2, device="meta")).is_meta


@pytest.mark.parametrize("alpha", [0.02, 0.5, 0.98])
def test_raw_alpha_inverts_the_bound(alpha: float):
    for clamp in ("hard", "straight_through", "sigmoid"):
        raw = torch.tensor(raw_alpha(alpha, clamp), dtype=torch.float64)
        assert math.isclose(bounded_alpha(raw, clamp).item(), alpha, rel_tol=1e-12)


@pytest.mark.parametrize("alpha", [0.01, 0.99, 2.0])
def test_sigmoid_cannot_start_at_the_ends(alpha: float):
    with pytest.raises(InputError, match=f"between 0.01 and 0.99 with clamp='sigmoid', not {alpha}"):
        AReLU(alpha, clamp="sigmoid")


def test_unknown_clamp_suggests_the_near_one():
    with pytest.raises(InputError, match="unknown clamp 'sigmoyd'; did you mean 'sigmoid'"):
        AReLU(clamp="sigmoyd")


def test_slopes_are_what_the_module_multiplies_by():
    module = AReLU(0.3, 1.0)
    assert module(torch.tensor(-1.0)).item() == -module.negative_slope.item()
    assert module(torch.tensor(1.0)).item() == module.positive_slope.item()


def test_infinite_input_leaves_the_other_side_a_finite_gradient():
    """x = (-2, +inf): dalpha = -2 although beta's is infinite."""
    alpha, beta = torch.tensor(0.5, requires_grad=True), torch.tensor(0.0, requires_grad=True)
    arelu(torch.tensor([-2.0, math.inf]), alpha, beta).sum().backward()
    assert alpha.grad.item() == -2.0
    assert beta.grad.item() == math.inf


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler")
@pytest.mark.slow
def test_compiled_by_inductor():
    """The default compiler, once, for the home case: values and gradients are those of the eager layer."""
    torch._dynamo.reset()
    module = AReLU().double()
    compiled = torch.compile(module, fullgraph=True)
    x = torch.tensor(X, dtype=torch.float64)
    out, expected = compiled(x), module(x)
    assert torch.allclose(out, expected, rtol=1e-12)
    parameters = list(module.parameters())
    wanted = torch.autograd.grad(expected.sum(), parameters)
    for gradient, value in zip(torch.autograd.grad(out.sum(), parameters), wanted, strict=True):
        assert torch.allclose(gradient, value, rtol=1e-12)
