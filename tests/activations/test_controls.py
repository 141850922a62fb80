"""The control arms: their gains follow from an integral over a Gaussian, not from the code's own formula."""

import math

import pytest
import torch
from scipy import integrate

from arelu_meta import activations
from arelu_meta.activations.controls import RMS_GAIN_OVER_RELU, ReLUGain

X = torch.linspace(-3, 3, 13)


def rms(name: str) -> float:
    """Root mean square of the activation's output on a standard Gaussian, by numeric integration."""
    module = activations.build(name).double()

    def square(x: float) -> float:
        with torch.no_grad():
            value = module(torch.tensor(x, dtype=torch.float64)).item()
        return value**2 * math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

    halves = [integrate.quad(square, *ends)[0] for ends in ((-10, 0), (0, 10))]
    return math.sqrt(sum(halves))


def test_gain_of_relu():
    """Half of the variance of 1 is left: sqrt(1/2)."""
    assert rms("relu") == pytest.approx(math.sqrt(0.5), rel=1e-9)


def test_gain_of_arelu_over_relu():
    """2.085, as the files say; and the constant in use is that number to all digits."""
    gain = rms("arelu") / rms("relu")
    assert round(gain, 3) == 2.085
    assert gain == pytest.approx(RMS_GAIN_OVER_RELU, rel=1e-6)


def test_relu_gain_has_the_gain_of_arelu():
    assert rms("relu_gain") == pytest.approx(rms("arelu"), rel=1e-6)


def test_arelu_unit_has_the_gain_of_relu():
    assert rms("arelu_unit") == pytest.approx(rms("relu"), rel=1e-6)


def test_relu_gain_is_a_multiple_of_relu():
    assert torch.equal(ReLUGain(3.0)(X), 3 * torch.relu(X))
    ratio = activations.build("relu_gain")(X)[X > 0] / X[X > 0]
    assert torch.allclose(ratio, torch.full_like(ratio, math.hypot(0.9, 1 + 1 / (1 + math.exp(-2)))))


def test_arelu_unit_has_the_shape_of_arelu():
    ratio = activations.build("arelu_unit")(X)[X != 0] / activations.build("arelu")(X)[X != 0]
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio))


def test_arelu_frozen_is_a_fresh_arelu_that_cannot_learn():
    frozen = activations.build("arelu_frozen")
    assert torch.equal(frozen(X), activations.build("arelu")(X))
    assert not list(frozen.parameters())
    assert set(frozen.state_dict()) == {"negative_slope", "positive_slope"}
