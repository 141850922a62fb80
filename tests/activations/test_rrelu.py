import pytest
import torch
from torch import nn

from arelu_meta.activations.rrelu import RReLU, rrelu

LOWER, UPPER = 1 / 8, 1 / 3


def test_evaluation_mode_is_that_of_torch():
    x = torch.linspace(-3, 3, 13)
    assert torch.allclose(RReLU().eval()(x), nn.RReLU().eval()(x), rtol=1e-6)


def test_training_slopes_are_uniform_between_the_bounds():
    """Of 100,000 slopes: mean (1/8 + 1/3) / 2 and variance (1/3 - 1/8)^2 / 12, within five standard errors.

    The variance of a uniform's square deviation is (u - l)^4 / 180.
    """
    n, width = 100_000, UPPER - LOWER
    with torch.random.fork_rng():
        torch.manual_seed(0)
        slopes = -RReLU().train()(-torch.ones(n, dtype=torch.float64))
    assert slopes.min() >= LOWER
    assert slopes.max() <= UPPER
    assert abs(slopes.mean() - (LOWER + UPPER) / 2) < 5 * width / (12 * n) ** 0.5
    assert abs(slopes.var() - width**2 / 12) < 5 * width**2 / (180 * n) ** 0.5


def test_positive_side_is_the_identity_in_both_modes():
    x = torch.linspace(0, 3, 7)
    for training in (True, False):
        assert torch.equal(rrelu(x, training=training), x)


def test_under_vmap_the_slopes_differ_per_task():
    x = -torch.ones(2, 50)
    slopes = torch.vmap(RReLU().train(), randomness="different")(x)
    assert not torch.equal(slopes[0], slopes[1])
    same = torch.vmap(RReLU().train(), randomness="same")(x)
    assert torch.equal(same[0], same[1])


def test_gradient_is_the_slope_that_was_drawn():
    x = torch.full((8,), -1.0, dtype=torch.float64, requires_grad=True)
    out = rrelu(x, training=True)
    out.sum().backward()
    assert torch.equal(x.grad, -out.detach())


@pytest.mark.parametrize("bounds", [(0.0, 0.5), (0.2, 0.2)])
def test_own_bounds(bounds: tuple[float, float]):
    out = RReLU(*bounds).eval()(torch.tensor([-1.0]))
    assert out.item() == pytest.approx(-sum(bounds) / 2)
