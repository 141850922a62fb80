import math

import pytest
import torch
from torch import nn

from arelu_meta import activations
from arelu_meta.activations.gain import GainMatched, mean_square
from arelu_meta.errors import InputError


@pytest.mark.parametrize(
    ("activation", "moment"),
    [
        ("relu", 1 / 2),
        ("leaky_relu", (1 + 0.01**2) / 2),
        ("arelu", (0.9**2 + (1 + 1 / (1 + math.exp(-2))) ** 2) / 2),
        ("maxout", 1.0),  # the larger of two Gaussians: E max^2 = 1
    ],
)
def test_mean_squares_by_hand(activation: str, moment: float):
    assert mean_square(activations.build(activation)) == pytest.approx(moment, rel=5e-3)


def test_the_activation_is_left_as_it_was():
    activation = nn.RReLU().train()
    middle = (1 / 8 + 1 / 3) / 2
    assert mean_square(activation) == pytest.approx((1 + middle**2) / 2, rel=1e-3)
    assert activation.training


@pytest.mark.parametrize("name", ["gelu", "tanh", "maxout", "xielu", "prelu", "squared_relu"])
def test_a_matched_one_has_relus_gain(name: str):
    """Counted by draws of another generator, not by quantiles."""
    matched = activations.build("gain_matched", base=name)
    x = torch.randn(400_000, matched.input_multiple, 1, 1, generator=torch.Generator().manual_seed(1))
    assert matched(x).square().mean().item() == pytest.approx(0.5, rel=0.02)
    assert [p.numel() for p in matched.parameters()] == [p.numel() for p in activations.build(name).parameters()]


def test_matched_arelu_is_arelu_unit():
    x = torch.linspace(-3, 3, 13)
    torch.testing.assert_close(GainMatched("arelu")(x), activations.build("arelu_unit")(x), rtol=1e-3, atol=0)
    assert GainMatched("arelu").gain == pytest.approx(math.hypot(0.9, 1 + 1 / (1 + math.exp(-2))), rel=1e-3)


def test_what_gives_nothing_is_refused():
    with pytest.raises(InputError, match=r"Threshold gives a mean square of 0\.0, from which no gain can be made"):
        mean_square(nn.Threshold(100, 0))
