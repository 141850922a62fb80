import numpy as np
import torch
import torch.nn.functional as F

from arelu_meta.activations.pau import PAU, pau

GRID = torch.linspace(-3, 3, 2001, dtype=torch.float64)  # the points of the fit


def test_rational_function_by_numpy():
    """sum a_i x^i over 1 + sum |b_j| |x|^j, with numpy's own polynomials and a negative b."""
    numerator, denominator = (0.5, -1.0, 2.0, 0.0, 0.3, -0.2), (-0.7, 0.4, 0.0, 1.1)
    x = np.linspace(-2, 2, 17)
    expected = np.polynomial.Polynomial(numerator)(x) / np.polynomial.Polynomial((1, 0.7, 0.4, 0.0, 1.1))(np.abs(x))
    out = pau(*(torch.tensor(values, dtype=torch.float64) for values in (x, numerator, denominator)))
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-12)


def test_start_is_leaky_relu_within_the_stated_error():
    """RMS error 0.0050, largest 0.030, at 0: as the file says, to the digits it gives."""
    error = PAU().double()(GRID).detach() - F.leaky_relu(GRID, 0.01)
    assert round(float(error.square().mean().sqrt()), 4) == 0.0050
    assert round(float(error.abs().max()), 3) == 0.030
    assert GRID[error.abs().argmax()].abs() < 1e-9


def test_no_poles():
    """The denominator is at least 1, whatever the coefficients are."""
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        numerator, denominator = (torch.randn(n, generator=random, dtype=torch.float64) * 5 for n in (6, 4))
        top = sum(a * GRID**i for i, a in enumerate(numerator))
        assert (pau(GRID, numerator, denominator).abs() <= top.abs() + 1e-9).all()
