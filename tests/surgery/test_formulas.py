"""What a module of anyone's computes: by where its class comes from, or by computing, never by its name."""

import functools
import importlib
import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.surgery import swap
from arelu_meta.surgery.activation_types import FOREIGN_CLASSES, module_type
from arelu_meta.surgery.formulas import FORMULAS, POINTS, formula_of

# Written out with Python's own functions, beside the kernels that FORMULAS calls.
BY_HAND = {
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "swish": lambda x: x / (1 + math.exp(-x)),
    "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "prelu": lambda x: x if x > 0 else 0.25 * x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "hardsigmoid": lambda x: min(max(x + 3, 0), 6) / 6,
    "tanh": math.tanh,
}
INSTALLED = [path for path in FOREIGN_CLASSES if not path.startswith("efficientnet_pytorch.")]


class Swish(nn.Module):
    """x sigmoid(b x) with b learned: torch's SiLU for b = 1 only."""

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.beta * x)


class GELU(nn.Module):
    """The name of one, the formula of none."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.5 * x)


class Anything(nn.Module):
    """The formula is a setting of the instance."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.factor * x)


class TanhForm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class AcrossChannels(nn.Module):
    """ReLU on vectors, something else on images."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) - x.sum(-1, keepdim=True) * 0


class OnlyInTraining(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * x if self.training else x * 1.0


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


class Overwrites(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(torch.sigmoid(x))


class Given(nn.Module):
    """The formula is a function that it is given."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Times:
    """A callable that does not show its factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Tensor) -> Tensor:
        return torch.clamp(x, min=0) * self.factor

    def __repr__(self) -> str:
        return "Times()"


class PassesGradients(torch.autograd.Function):
    """ReLU with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.relu()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return gradient


def without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.relu(x)


def straight_through(x: Tensor) -> Tensor:
    with torch.no_grad():
        rest = torch.relu(x) - x
    return x + rest


# No ReLU, each by something that the values on a few points in one mode do not show.
NEARLY_RELU: dict[str, Callable[[Tensor], Any]] = {
    "bounded far out": lambda x: x.clamp(0, 100),
    "bounded farther out": lambda x: torch.relu(x).clamp(max=1e20),
    "a pair": lambda x: (torch.relu(x), x),
    "a dict": lambda x: {"x": torch.relu(x)},
    "nothing": lambda _: None,
    "another backward": PassesGradients.apply,
    "no gradient": without_gradient,
    "straight through": straight_through,
    "only with gradients": lambda x: torch.relu(x) if torch.is_grad_enabled() else x * 1.0,
    "only without gradients": lambda x: x * 1.0 if torch.is_grad_enabled() else torch.relu(x),
}


@pytest.mark.parametrize("name", NEARLY_RELU)
def test_what_is_nearly_relu_is_none(name: str):
    module = Given(NEARLY_RELU[name])
    assert formula_of(module) is None
    assert formula_of(Given(torch.relu)) == formula_of(Given(lambda x: torch.maximum(x, x * 0))) == "relu"


def test_a_module_that_gives_no_tensor_does_not_break_a_swap():
    """AttributeError: 'tuple' object has no attribute 'shape'."""

    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair, self.act = Given(lambda x: (x, x)), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.pair(x)[0])

    assert len(swap(Holds(), "arelu").sites) == 1


def test_one_module_is_never_taken_for_another():
    """What was found was kept by the text of the settings: the address of a function, which is given again."""
    functions: dict[str, Callable[[], Callable[[Tensor], Tensor]]]
    functions = {"relu": lambda: lambda x: torch.relu(x), "None": lambda: lambda x: x * x}
    for name in ("relu", "None") * 20:
        assert str(formula_of(Given(functions[name]()))) == name
    assert formula_of(Given(Times(1.0))) == "relu"
    assert formula_of(Given(Times(2.0))) is None
    model = nn.Sequential(Given(Times(1.0)), Given(Times(2.0)))
    assert [site.name for site in swap(model, "tanh").sites] == ["0"]


def test_a_class_may_change_between_two_swaps():
    class Leaky(nn.Module):
        slope = 0.0

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x > 0, x, x * self.slope)

    assert module_type(module := Leaky()) == "relu"
    Leaky.slope = 0.3
    assert module_type(module) is None


def test_a_hook_does_not_keep_a_formula_from_being_proved():
    """Its owner was copied with it, which an open file does not allow."""
    module = Anything(1.0)
    with open(__file__) as file:
        owner = types.SimpleNamespace(file=file, hook=lambda *_: None)
        module.register_forward_hook(functools.partial(lambda _owner, *_: None, owner))
        assert formula_of(module) == "swish"


@pytest.mark.parametrize("path", INSTALLED)
def test_known_classes_exist_and_compute_what_they_are_known_as(path: str):
    home, _, name = path.partition(":")
    module = getattr(importlib.import_module(home), name)()
    assert module_type(module) == FOREIGN_CLASSES[path]
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    wanted = torch.tensor([BY_HAND[FOREIGN_CLASSES[path]](value) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(module.double()(x.clone()), wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", sorted(BY_HAND.keys() & FORMULAS.keys()))
def test_formulas_are_those_of_the_papers(name: str):
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    wanted = torch.tensor([BY_HAND[name](value) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(FORMULAS[name](x), wanted, rtol=1e-12, atol=1e-14)


def test_formulas_are_told_apart():
    """As the head of formulas.py says: 0.0005 apart at least, where GELU and its approximation by tanh are nearest."""
    values = {name: formula(POINTS) for name, formula in FORMULAS.items()}
    distances = {
        (first, second): (values[first] - values[second]).abs().max().item()
        for first in values
        for second in values
        if first < second
    }
    assert min(distances, key=distances.__getitem__) == ("gelu", "gelu_tanh")
    assert min(distances.values()) == pytest.approx(0.0005, abs=5e-5)


def test_modules_without_parameters_are_known_by_computing():
    assert formula_of(Anything(1.0)) == "swish"
    assert formula_of(Anything(1.702)) == "quick_gelu"
    assert formula_of(Anything(1.5)) is None
    assert formula_of(TanhForm()) == "gelu_tanh"


@pytest.mark.parametrize("kind", [Swish, GELU, AcrossChannels, OnlyInTraining, Counts, Overwrites])
def test_what_is_not_proved_is_no_activation(kind: type[nn.Module]):
    assert module_type(kind()) is None


def test_a_learned_factor_survives_a_swap():
    """Replaced by its name before, and the factor was lost."""
    model = nn.Sequential(nn.Linear(2, 2), Swish(), nn.Linear(2, 2), nn.ReLU())
    report = swap(model, "arelu")
    assert [site.name for site in report.sites] == ["3"]
    assert isinstance(model[1], Swish)
    with pytest.raises(InputError, match="applies none of"):
        swap(nn.Sequential(GELU()), "arelu")


def test_blocks_with_a_known_function_inside_keep_their_parameters():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(3.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * F.gelu(x)

    model = nn.Sequential(Scaled())
    swap(model, "relu")
    assert model(torch.tensor([2.0])).item() == 6.0
