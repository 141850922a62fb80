"""Which of torch's functions are differentiated wrongly under vmap: all that torch's own tests list, against a loop.

What is found here and used by a layer of torch.nn has an operation of ours; the self-check finds the rest in a network.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

KNOWN_WRONG = {"native_layer_norm", "nn.functional.layer_norm", "select_scatter"}
SAMPLES, LARGEST = 12, 2000


def usable(tensor: object) -> bool:
    plain = isinstance(tensor, Tensor) and tensor.layout is torch.strided and tensor.is_floating_point()
    return plain and 0 < tensor.numel() <= LARGEST


def samples(operation: Any) -> Iterator[tuple[Callable[..., Tensor], list[Tensor]]]:
    """Functions of tensors that give one number, and tensors to call them with."""
    for sample in list(operation.sample_inputs("cpu", torch.float64, requires_grad=True))[:SAMPLES]:
        leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not places or not all(usable(leaves[place]) for place in places):
            continue

        def function(*tensors: Tensor, leaves=leaves, structure=structure, places=places) -> Tensor:
            given = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            first, args, kwargs = tree_unflatten(given, structure)
            found = [out for out in tree_leaves(operation.op(first, *args, **kwargs)) if usable(out)]
            scales = [torch.linspace(0.3, 1.7, out.numel(), dtype=out.dtype).view(out.shape) for out in found]
            return torch.stack([(out * scale).tanh().sum() for out, scale in zip(found, scales, strict=True)]).sum()

        yield function, [leaves[place].detach() for place in places]


def squared_gradients(function: Callable[..., Tensor], tensors: list[Tensor], *, vectorise: bool) -> list[Tensor]:
    """Their gradient in shifts that two episodes share, and their value."""
    random = torch.Generator().manual_seed(0)
    own = [torch.stack([t, t + 0.05 * torch.rand(t.shape, dtype=t.dtype, generator=random)]) for t in tensors]
    shared = [torch.zeros_like(tensor).requires_grad_() for tensor in tensors]

    def episode(shifts: list[Tensor], at: list[Tensor]) -> Tensor:
        points = [shift + value for shift, value in zip(shifts, at, strict=True)]
        found = grad(function, argnums=tuple(range(len(points))))(*points)
        return torch.stack([gradient.square().sum() for gradient in found]).sum()

    torch.manual_seed(1)
    if vectorise:
        total = torch.vmap(episode, in_dims=(None, 0))(shared, own).sum()
    else:
        total = torch.stack([episode(shared, [both[number] for both in own]) for number in range(2)]).sum()
    found = torch.autograd.grad(total, shared, allow_unused=True, materialize_grads=True)
    return [total.detach().reshape(1), *found]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_under_vmap_is_known():
    """NaN are left out (samples outside of a function's domain), as are values that differ: random, or by value."""
    from torch.testing._internal.common_methods_invocations import op_db

    wrong, compared = set(), 0
    for operation in op_db:
        if not operation.supports_gradgrad or torch.float64 not in operation.dtypes:
            continue
        try:
            cases = list(samples(operation))
        except Exception:  # torch's samples need what is not installed  # noqa: S112
            continue
        for function, tensors in cases:
            try:
                looped = squared_gradients(function, tensors, vectorise=False)
                vectorised = squared_gradients(function, tensors, vectorise=True)
            except Exception:  # what raises is no wrong number  # noqa: S112
                continue
            same_value = torch.allclose(looped[0], vectorised[0], rtol=1e-6)
            if not same_value or not all(found.isfinite().all() for found in (*looped, *vectorised)):
                continue
            compared += 1
            pairs = zip(looped[1:], vectorised[1:], strict=True)
            if not all(torch.allclose(one, other, rtol=1e-5, atol=1e-8) for one, other in pairs):
                wrong.add(operation.full_name)
    assert compared > 2500
    assert wrong == KNOWN_WRONG
