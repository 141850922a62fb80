"""Products of windows, against sums over their indices."""

import pytest
import torch
from torch import Size, Tensor

from arelu_meta.kernels.window_products import PatchConvolution, StripConvolution, product


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize(("columns", "rows_in_memory"), [(10, 10), (16, 40), (64, 40), (41, 40)])
def test_a_product_of_few_columns_is_computed_transposed(columns: int, rows_in_memory: int):
    torch.manual_seed(0)
    first, second = drawn(3, 40, 7), drawn(3, 7, columns)
    found = product(first, second)
    torch.testing.assert_close(found, torch.einsum("emk,ekn->emn", first, second))
    in_memory = found if rows_in_memory == 40 else found.transpose(1, 2)
    assert in_memory.is_contiguous()
    assert in_memory.shape[1] == rows_in_memory


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
@pytest.mark.parametrize("outputs", [5, 8])
def test_the_three_maps_of_patches(leading: tuple[int, ...], outputs: int):
    """Outputs o[m, n] = sum of p[m, k] w[k, n]; the other two by its derivatives with respect to p and w."""
    torch.manual_seed(0)
    patches, weight, given = drawn(*leading, 12, 4), drawn(*leading, 4, outputs), drawn(*leading, 12, outputs)
    kernel = PatchConvolution()
    wanted = {
        "output": ((patches, weight), torch.einsum("...mk,...kn->...mn", patches, weight)),
        "image": ((given, weight), torch.einsum("...mn,...kn->...mk", given, weight)),
        "weight": ((given, patches), torch.einsum("...mn,...mk->...kn", given, patches)),
    }
    for role, (factors, result) in wanted.items():
        torch.testing.assert_close(kernel(*factors, role, result.shape), result)


@pytest.mark.parametrize("leading", [(), (3,)])
def test_the_three_maps_of_strips(leading: tuple[int, ...]):
    """o[h, m, n] = sum over rows r and k of s[h + r, m, k] w[r, k, n], from the sum itself and its derivatives."""
    torch.manual_seed(0)
    strips, weight = drawn(*leading, 6, 5, 4).requires_grad_(), drawn(*leading, 3, 4, 7).requires_grad_()
    met = strips.unfold(-3, 3, 1)  # (..., h, m, k, r)
    outputs = torch.einsum("...hmkr,...rkn->...hmn", met, weight)
    given = torch.randn_like(outputs)
    to_strips, to_weight = torch.autograd.grad(outputs, (strips, weight), given)
    kernel = StripConvolution()
    strips, weight = strips.detach(), weight.detach()
    torch.testing.assert_close(kernel(strips, weight, "output", Size()), outputs.detach())
    torch.testing.assert_close(kernel(given, weight, "image", strips.shape), to_strips)
    torch.testing.assert_close(kernel(given, strips, "weight", weight.shape), to_weight)
