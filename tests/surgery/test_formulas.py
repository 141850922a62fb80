"""What a module of anyone's computes: by where its class comes from, or by computing, never by its name."""

import importlib
import math

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
