from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from arelu_meta.kernels.operation_tape import Recording, Tape

WEIGHT = torch.tensor([1.0, -2.0, 3.0])


def recorded(
    function: Callable[..., Tensor | tuple[Tensor | None, ...]], *inputs: Tensor, lasting: tuple[Tensor, ...] = ()
) -> tuple[Tape | None, str]:
    with Recording(inputs, lasting) as recording:
        results = function(*inputs)
        results = results if isinstance(results, tuple) else (results,)
    return recording.tape(results), recording.obstacle


def test_repeated_on_other_inputs():
    tape, obstacle = recorded(lambda x, y: (x * y + 1, None), torch.zeros(2), torch.zeros(2))
    assert obstacle == ""
    assert tape is not None
    product, nothing = tape(torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]))
    assert product.tolist() == [11.0, 22.0]
    assert nothing is None


def test_views_changed_in_place_and_results_of_several_parts():
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        copy = x.clone()
        copy[0].mul_(10)
        largest, places = copy.max(dim=1)
        return largest, places, torch.cat(copy.split(1, dim=1)[:1])

    tape, obstacle = recorded(function, torch.tensor([[1.0, 2.0], [5.0, 4.0]]))
    assert obstacle == ""
    assert tape is not None
    largest, places, first = tape(torch.tensor([[3.0, 1.0], [0.0, 7.0]]))
    assert (largest.tolist(), places.tolist(), first.tolist()) == ([30.0, 7.0], [0, 1], [[30.0], [0.0]])


def test_gradients_of_gradients_over_tasks():
    """f(w) = sum w^3: f' = 3 w^2; of sum (f')^2 = 9 w^4 the gradient is 36 w^3, and 36 w^3 x^2 with inputs x w^3."""

    def function(x: Tensor) -> Tensor:
        def of_task(one: Tensor) -> Tensor:
            return torch.func.grad(lambda w: (one * w**3).sum())(weight).square().sum()

        (gradient,) = torch.autograd.grad(torch.vmap(of_task)(x).sum(), weight)
        return gradient

    weight = WEIGHT.clone().requires_grad_()
    tape, obstacle = recorded(function, torch.ones(4, 3), lasting=(weight,))
    assert obstacle == ""
    assert tape is not None
    with torch.no_grad():
        weight.copy_(torch.tensor([1.0, 2.0, -1.0]))  # what lasts is used as it is when the tape is played
    (gradient,) = tape(2 * torch.ones(4, 3))
    assert gradient.tolist() == [4 * 36 * 4, 4 * 36 * 8 * 4, -4 * 36 * 4]
    assert not gradient.requires_grad


def test_constants_are_each_repetitions_own():
    tape, obstacle = recorded(lambda x: torch.tensor([1.0, 2.0]).add_(x), torch.ones(2))
    assert obstacle == ""
    assert tape is not None
    assert [tape(torch.ones(2))[0].tolist() for _ in range(2)] == [[2.0, 3.0], [2.0, 3.0]]


def test_a_part_of_memory_is_that_of_the_input():
    numbers = torch.arange(6.0)
    tape, obstacle = recorded(lambda x: x.as_strided((2,), (1,)) * 1, numbers[:3])
    assert obstacle == ""
    assert tape(numbers[3:])[0].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("function", "obstacle"),
    [
        (lambda x: x * x.sum().item(), "it looks at a number (aten."),
        (lambda x: x if x.sum() > 0 else -x, "it looks at a number (aten."),
        (lambda x: x[x > 0], "the shape of a result depends on numbers (aten."),
        (lambda x: x + torch.rand(2), "it draws random numbers (aten."),
        (lambda x: torch.dropout(x, 0.5, True), "it draws random numbers (aten."),
        (lambda x: x.as_strided((1,), (1,), 1), "it reads from a place in memory (aten."),
        (lambda x: x * WEIGHT[:2], "it uses a tensor (3,) from outside"),
    ],
)
def test_what_cannot_be_repeated_is_named(function: Callable[[Tensor], Tensor], obstacle: str):
    tape, found = recorded(function, torch.ones(2))
    assert tape is None
    assert found.startswith(obstacle)


def test_one_tensor_for_two_inputs():
    x = torch.ones(2)
    assert recorded(lambda x, y: x + y, x, x)[1] == "one tensor is given twice"
