"""Which formula a module or a call computes, and what a swap makes of it."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.surgery import swap
from arelu_meta.surgery.activation_types import module_type


class QuickGELU(nn.Module):
    """As timm has it."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class GELUTanh(nn.Module):
    """As timm has it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


class Functional(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


def test_approximations_of_gelu_are_types_of_their_own():
    assert module_type(nn.GELU()) == "gelu"
    assert module_type(nn.GELU(approximate="tanh")) == module_type(GELUTanh()) == "gelu_tanh"
    assert module_type(QuickGELU()) == "quick_gelu"


def test_how_far_the_approximations_are_from_gelu():
    """The figures in the head of activation_types.py."""
    x = torch.linspace(-8, 8, 16001, dtype=torch.float64)
    exact = x * (1 + torch.erf(x / math.sqrt(2))) / 2
    assert (GELUTanh()(x) - exact).abs().max().item() == pytest.approx(0.0005, abs=5e-5)
    assert (QuickGELU()(x) - exact).abs().max().item() == pytest.approx(0.02, abs=5e-4)


@pytest.mark.parametrize("old", [QuickGELU(), GELUTanh(), nn.GELU(approximate="tanh"), Functional()])
def test_gelu_replaces_its_approximations(old: nn.Module):
    """They are not the same, so there is something to do, and the residual is their difference over |x|."""
    x = torch.logspace(-3, 3, 601, dtype=torch.float64)
    x = torch.cat([-x, x])
    distance = ((F.gelu(x) - old(x)) / x).abs().max().item()
    (site,) = swap(nn.Sequential(old), "gelu", preserve=True).sites
    assert site.residual == pytest.approx(distance, rel=1e-9)
    assert distance > 1e-4


def test_gelu_alone_is_replaced_when_gelu_is_asked_for():
    model = nn.Sequential(nn.GELU(), QuickGELU(), GELUTanh())
    assert [site.name for site in swap(model, "arelu", from_="gelu").sites] == ["0"]
    assert [site.name for site in swap(model, "arelu", from_=("quick_gelu", "gelu_tanh")).sites] == ["1", "2"]
    with pytest.raises(InputError, match="it has gelu, gelu_tanh"):
        swap(nn.Sequential(nn.GELU(), GELUTanh()), "arelu", from_="quick_gelu")


def test_code_that_may_call_gelu_with_the_approximation_is_not_cleared():
    class Hides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(x, approximate="tanh") if x.shape[0] > 1 else x

    with pytest.raises(InputError, match="1 cannot be traced"):
        swap(nn.Sequential(GELUTanh(), Hides()), "arelu", from_="gelu_tanh")


def test_a_subclass_with_state_of_its_own_is_looked_into():
    """It was replaced, and what it held was lost."""

    class Counting(nn.ReLU):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))

    class Plain(nn.ReLU):
        pass

    class Slope(nn.PReLU):
        pass

    model = nn.Sequential(Counting(), Plain(), Slope())
    report = swap(model, "tanh")
    assert sorted((site.name, site.old) for site in report.sites) == [
        ("0.relu", "F.relu"),
        ("1", "Plain"),
        ("2", "Slope"),
    ]
    assert list(model.state_dict()) == ["0.steps"]
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(model(x), x.tanh().tanh().tanh())


@pytest.mark.parametrize("wrong", [5, [nn.ReLU]])
def test_what_is_no_name_is_refused(wrong: object):
    with pytest.raises(InputError, match="`from_` is the name of an activation, several, or None, not "):
        swap(nn.Sequential(nn.ReLU()), "arelu", from_=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`where` is a glob pattern on site names, a predicate or None, not "):
        swap(nn.Sequential(nn.ReLU()), "arelu", where=wrong)  # type: ignore[arg-type]
