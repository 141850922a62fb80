"""Our norms compute what torch's do, and their second derivatives are right where torch's are not."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad

from arelu_meta.kernels import norms
from arelu_meta.kernels.episode_operations import ExactOperations

FLOAT = torch.float64


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=FLOAT, generator=torch.Generator().manual_seed(seed))


RUNNING = (numbers(3, seed=5), numbers(3, seed=6).square() + 0.5)
# Ours, torch's, the input, and the parameters.
CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], Tensor, tuple[Tensor, ...]]] = {
    "batch": (
        lambda x, w, b: norms.batch_norm(x, None, None, w, b, True),
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        numbers(4, 3, 2, 2),
        (numbers(3, seed=1), numbers(3, seed=2)),
    ),
    "batch, running statistics": (
        lambda x, w, b: norms.batch_norm(x, *RUNNING, w, b, False),
        lambda x, w, b: F.batch_norm(x, *RUNNING, w, b, False),
        numbers(4, 3, 2),
        (numbers(3, seed=1), numbers(3, seed=2)),
    ),
    "instance": (
        lambda x, w, b: norms.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        numbers(2, 3, 4, 2),
        (numbers(3, seed=1), numbers(3, seed=2)),
    ),
    "instance, running statistics": (
        lambda x, w, b: norms.instance_norm(x, *RUNNING, w, b, False),
        lambda x, w, b: F.instance_norm(x, *RUNNING, w, b, False),
        numbers(2, 3, 4),
        (numbers(3, seed=1), numbers(3, seed=2)),
    ),
    "layer": (
        lambda x, w, b: norms.layer_norm(x, [3, 2], w, b),
        lambda x, w, b: F.layer_norm(x, [3, 2], w, b),
        numbers(4, 3, 2),
        (numbers(3, 2, seed=1), numbers(3, 2, seed=2)),
    ),
    "layer, weight alone": (
        lambda x, w: norms.layer_norm(x, [5], w, None, 1e-3),
        lambda x, w: F.layer_norm(x, [5], w, None, 1e-3),
        numbers(4, 5),
        (numbers(5, seed=1),),
    ),
    "weight": (
        lambda v, g: norms.weight_norm(v, g, 0),
        lambda v, g: torch._weight_norm(v, g, 0),
        numbers(3, 2, 2),
        (numbers(3, 1, 1, seed=1),),
    ),
    "weight, last axis": (
        lambda v, g: norms.weight_norm(v, g, 2),
        lambda v, g: torch._weight_norm(v, g, 2),
        numbers(3, 2, 4),
        (numbers(1, 1, 4, seed=1),),
    ),
}
WRONG_UNDER_VMAP = ["batch", "instance", "layer", "layer, weight alone"]
every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_values_and_gradients_are_torchs(name: str):
    ours, theirs, x, parameters = CASES[name]
    inputs = [tensor.clone().requires_grad_() for tensor in (x, *parameters)]
    found, expected = ours(*inputs), theirs(*inputs)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(*(torch.autograd.grad(out.tanh().sum(), inputs) for out in (found, expected)), strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-12)


@every_case
def test_second_derivatives_by_differences(name: str):
    ours, _, x, parameters = CASES[name]
    inputs = tuple(tensor.clone().requires_grad_() for tensor in (x, *parameters))
    assert torch.autograd.gradgradcheck(ours, inputs, atol=1e-6)


def second_derivative(function: Callable[..., Tensor], inputs: list[Tensor], *, vectorise: bool) -> Tensor:
    """Gradient, in shifts that two episodes share, of the squared gradients of each; parameters differ between them."""
    shifts = [torch.zeros_like(tensor).requires_grad_() for tensor in inputs]
    both = [torch.stack([tensor, tensor.flip(0) * 1.5]) for tensor in inputs]
    every = tuple(range(len(inputs)))

    def episode(shared: list[Tensor], own: list[Tensor]) -> Tensor:
        points = [one + other for one, other in zip(shared, own, strict=True)]
        found = grad(lambda *point: function(*point).tanh().sum(), argnums=every)(*points)
        return torch.stack([gradient.square().sum() for gradient in found]).sum()

    if vectorise:
        total = torch.vmap(episode, in_dims=(None, 0))(shifts, both).sum()
    else:
        total = torch.stack([episode(shifts, [tensor[number] for tensor in both]) for number in range(2)]).sum()
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(total, shifts)])


@every_case
def test_vectorised_second_derivatives_are_those_of_a_loop(name: str):
    ours, _, x, parameters = CASES[name]
    looped, vectorised = (second_derivative(ours, [x, *parameters], vectorise=flag) for flag in (False, True))
    assert torch.allclose(vectorised, looped, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", WRONG_UNDER_VMAP)
def test_torchs_own_are_still_wrong_under_vmap(name: str):
    """When this fails, torch is mended: see docs/meta_learning.md, and take ours out where it is."""
    _, theirs, x, parameters = CASES[name]
    looped, vectorised = (second_derivative(theirs, [x, *parameters], vectorise=flag) for flag in (False, True))
    assert not torch.allclose(vectorised, looped, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["batch", "instance", "layer"])
def test_half_precision_neither_overflows_nor_loses(name: str, dtype: torch.dtype):
    """Squares of 10 sigma over 1,024 numbers are beyond float16; torch computes them in float32, and so do we."""
    ours, theirs, _, parameters = CASES[name]
    shape = {"batch": (64, 3, 4, 4), "instance": (2, 3, 32, 32), "layer": (170, 3, 2)}[name]
    x = (30 * numbers(*shape)).to(dtype)
    for given in (parameters, tuple(each.to(dtype) for each in parameters), tuple(each.float() for each in parameters)):
        if given[0].dtype is torch.float64:
            continue
        found, expected = ours(x, *given), theirs(x.float(), *(each.float() for each in given))
        assert found.dtype is dtype
        assert torch.allclose(found.float(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (torch.nn.LayerNorm(1), (4, 6)),
        (torch.nn.LayerNorm(3, elementwise_affine=False), (4, 6)),
        (torch.nn.BatchNorm1d(1), (4, 6)),
        (torch.nn.BatchNorm2d(1), (4, 6, 2, 2)),
        (torch.nn.InstanceNorm2d(3), (4, 3, 1, 1)),
    ],
    ids=str,
)
def test_what_torch_refuses_is_refused(layer: torch.nn.Module, shape: tuple[int, ...]):
    x = torch.randn(shape)
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        layer(x)
    with ExactOperations(), pytest.raises((RuntimeError, ValueError)) as found:
        layer(x)
    assert str(found.value) == str(theirs.value)


def test_torchs_weight_norm_is_still_wrong_in_any_loop():
    """When this fails, torch is mended, and `weight_norm` may go."""
    ours, theirs, v, parameters = CASES["weight"]
    right, found = (second_derivative(function, [v, *parameters], vectorise=False) for function in (ours, theirs))
    assert not torch.allclose(found, right, rtol=1e-3, atol=1e-6)


def test_the_report_in_the_docs_shows_the_fault(root, capsys):
    """The twelve lines of pure torch that docs/meta_learning.md gives to torch's developers."""
    page = (root / "docs" / "meta_learning.md").read_text()
    code = page.partition("<!-- report -->\n```python\n")[2].partition("```")[0]
    assert 8 <= len([line for line in code.splitlines() if line]) <= 12
    assert "arelu_meta" not in code
    exec(compile(code, "report", "exec"), {})  # noqa: S102  (our own page)
    looped, vectorised = (float(word) for word in capsys.readouterr().out.split())
    assert abs(looped - vectorised) > 1e-3 * abs(looped)
