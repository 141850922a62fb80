"""ELSA against equation 3 of the paper: AReLU is ReLU plus the attention."""

import pytest
import torch

from arelu_meta import activations
from arelu_meta.activations.elsa import ELSA

X = torch.linspace(-2, 2, 9, dtype=torch.float64)  # holds 0


def test_attention_alone():
    """beta = 0: sigmoid = 1/2. C(0.25) x below zero, x / 2 from zero on."""
    out = ELSA(alpha=0.25, beta=0.0).double()(torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64))
    assert out.tolist() == [-0.5, 0.0, 1.0]


def test_on_relu_it_is_arelu_with_the_same_gradients():
    elsa, arelu = ELSA(base="relu").double(), activations.build("arelu").double()
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    out, expected = elsa(x), arelu(y)
    assert torch.allclose(out, expected, rtol=1e-14)
    out.square().sum().backward()
    expected.square().sum().backward()
    away = X != 0  # torch takes 0 as ReLU's gradient at 0
    assert torch.allclose(x.grad[away], y.grad[away], rtol=1e-14)
    for name in ("alpha", "beta"):
        assert torch.allclose(getattr(elsa, name).grad, getattr(arelu, name).grad, rtol=1e-14)


@pytest.mark.parametrize("base", ["tanh", "gelu", "prelu", "pau", torch.nn.ELU])
def test_adds_to_any_base(base):
    alone, both = ELSA().double(), ELSA(base=base).double()
    assert torch.allclose(both(X), alone(X) + activations.build(base).double()(X), rtol=1e-14)


@pytest.mark.parametrize("base", ["relu", "prelu", "pau"])
def test_base_keeps_its_parameters(base: str):
    count = sum(parameter.numel() for parameter in ELSA(base=base).parameters())
    assert count == 2 + sum(parameter.numel() for parameter in activations.build(base).parameters())


def test_alpha_dies_outside_its_interval_unless_told_otherwise():
    for clamp, alive in (("hard", False), ("straight_through", True)):
        module = ELSA(alpha=1.5, clamp=clamp)
        module(torch.tensor([-1.0])).sum().backward()
        assert bool(module.alpha.grad != 0) == alive
