import pytest
import torch

from arelu_meta import activations


def test_squared_relu_by_hand():
    assert activations.build("squared_relu")(torch.tensor([-2.0, 0.0, 1.5])).tolist() == [0.0, 0.0, 2.25]


def test_star_relu_starts_with_mean_0_and_variance_1():
    """relu(z)^2 of Gaussian z has mean 1/2 and variance 3/2 - 1/4: s = 1 / sqrt(5/4), b = -s/2."""
    x = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    out = activations.build("star_relu")(x)
    assert out.mean().item() == pytest.approx(0, abs=0.005)
    assert out.var().item() == pytest.approx(1, abs=0.02)
    assert activations.build("star_relu", scale=2.0, shift=1.0)(torch.tensor([3.0])).item() == 19.0
