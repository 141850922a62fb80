import numpy as np
import pytest
import torch
import torch.nn.functional as F

from arelu_meta.activations.slaf import SLAF, SLAFPaper, slaf
from arelu_meta.errors import InputError


def test_polynomial_by_numpy():
    coefficients, x = (0.3, -1.2, 0.7, 0.05), np.linspace(-3, 3, 13)
    out = slaf(torch.tensor(x), torch.tensor(coefficients, dtype=torch.float64))
    np.testing.assert_allclose(out.numpy(), np.polynomial.Polynomial(coefficients)(x), rtol=1e-12)


@pytest.mark.parametrize("terms", [3, 5])
def test_starts_as_the_taylor_polynomial_of_swish(terms: int):
    """swish has no cubic term at 0; its quartic one is -1/48, so the error at 0.1 is below 0.1^4 / 40."""
    module = SLAF(terms).double()
    x = torch.linspace(-0.1, 0.1, 11, dtype=torch.float64)
    assert (module(x) - F.silu(x)).abs().max() < 0.1**4 / 40
    assert module.coefficients.numel() == terms


@pytest.mark.parametrize("terms", [0, 2])
def test_affine_is_refused(terms: int):
    with pytest.raises(InputError, match=f"at least 3, not {terms}.*slaf_paper"):
        SLAF(terms)


def test_the_authors_version_starts_at_one_plus_x_and_stays_affine():
    x, module = torch.linspace(-3, 3, 13, dtype=torch.float64), SLAFPaper().double()
    assert torch.equal(module(x), 1 + x)
    with torch.no_grad():
        module.coefficients.copy_(torch.tensor([-0.3, 2.5]))
    second_difference = module(x).diff(n=2)
    assert second_difference.abs().max() < 1e-12
