"""What code around a part does with it: networks that gave a wrong result, or lost an activation, without a word."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.surgery import SwapReport, swap
from arelu_meta.surgery.source import ANYTHING, calls_once, compared_by_identity, names_inside, uses_of
from tests.surgery.counting import count_calls, count_kernels


class Encoder(nn.Module):
    """A method of its own in front of its head; `act` and `out` are what others may name."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act, self.out = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)

    def encode(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.act(self.encode(x)))


class Uses(nn.Module):
    """Untraceable around two parts, and around a third that is proved in any case."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.list = Encoder(), nn.ModuleList([Encoder()])
        self.row, self.certain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), self.proved()

    def proved(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.certain(x) if x.sum() < 1e9 else x
        return self.use(x)

    def use(self, x: Tensor) -> Tensor:
        for number, part in enumerate(self.list):
            x = part(x) + number
        return self.row(self.part(x)) if self.part is not None else x


class Method(Uses):
    def use(self, x: Tensor) -> Tensor:
        return self.part.encode(x)


class MethodByName(Uses):
    def use(self, x: Tensor) -> Tensor:
        return getattr(self.part, "encode")(x)  # noqa: B009


class AnyMethod(Uses):
    def use(self, x: Tensor, name: str = "encode") -> Tensor:
        return getattr(self.part, name)(x)


class Activation(Uses):
    def use(self, x: Tensor) -> Tensor:
        return self.part.act(self.part(x) - 0.1)


class Handed(Uses):
    def use(self, x: Tensor) -> Tensor:
        return functools.reduce(lambda x, part: part.encode(x), [self.part], x)


class Iterated(Uses):
    def use(self, x: Tensor) -> Tensor:
        for layer in self.row:
            x = layer(x)
        return x


class Indexed(Uses):
    def use(self, x: Tensor) -> Tensor:
        return self.row[1](self.row(x))


class Layer(Uses):
    def use(self, x: Tensor) -> Tensor:
        return self.part(x) + self.part.out(x)


def network(kind: type[Uses]) -> tuple[Uses, Tensor]:
    torch.manual_seed(0)
    return kind(), torch.randn(64, 4, generator=torch.Generator().manual_seed(1))


def names(report: SwapReport) -> list[str]:
    return [site.name for site in report.sites]


def left(report: SwapReport) -> set[str]:
    return {place.path for place in report.left}


def test_what_is_only_called_is_taken_whole():
    model, x = network(Uses)
    report = swap(model, "tanh", parts="auto")
    assert sorted(report.parts) == ["certain", "list.0", "part", "row"]
    assert count_kernels(model, x) == 0
    assert count_calls(model, names(report), x) == dict.fromkeys(names(report), 1)
    folded = swap(network(Uses)[0], "arelu", preserve=True, parts="auto")
    assert {site.folded_into for site in folded.sites} >= {"part.out", "list.0.out", "row.2"}


@pytest.mark.parametrize("kind", [Method, MethodByName, Handed])
def test_a_part_whose_method_is_called_is_not_written_anew(kind: type[Uses]):
    """The rewritten forward never ran; the old method did, and nothing was said of it."""
    model, x = network(kind)
    report = swap(model, "tanh", parts="auto")
    assert "part.relu" not in names(report)
    assert count_kernels(model, x) == 1
    assert "part" in left(report)


def test_code_that_may_name_anything_leaves_nothing_to_prove():
    with pytest.raises(InputError, match="cannot prove the activation calls"):
        swap(AnyMethod(), "tanh", parts="auto")


def test_an_activation_that_the_code_around_calls_too_is_left():
    model, x = network(Activation)
    report = swap(model, "tanh", parts="auto")
    assert "part.act" not in names(report)
    assert {"part", "part.act"} <= left(report)
    assert count_kernels(model, x) == 3


def test_a_row_of_layers_that_is_iterated_keeps_its_forward():
    """One block at two places: the rewritten forward had an activation for each, and did not run."""
    model, x = network(Iterated)
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Identity())
    model.row = nn.Sequential(block, block)
    report = swap(model, "prelu", from_="relu", parts="auto")
    assert count_kernels(model, x) == 3  # the two calls of one PReLU, and GELU
    assert [name for name in names(report) if name.startswith("row")] == ["row.0.1"]
    assert not [path for path in report.rewritten if path.startswith("row")]
    assert swap(network(Iterated)[0], "tanh", parts="auto").parts.count("row") == 1


def test_a_row_of_layers_that_is_called_and_indexed_is_looked_into():
    model, x = network(Indexed)
    report = swap(model, "tanh", from_="relu", parts="auto")
    assert "row.1" in left(report)
    assert "row.1" not in names(report)
    assert count_kernels(model, x) == 3


@pytest.mark.parametrize("to", [("relu_gain", 3.0), ("relu_gain", 0.5)])
def test_no_gain_goes_into_a_layer_that_the_code_around_calls(to: tuple[str, float]):
    """Folded, b.o(x) alone came out divided by the gain, with a residual of 2e-16 reported."""
    model, _ = network(Layer)
    weight = model.part.out.weight.clone()
    report = swap(model, to[0], gain=to[1], preserve=True, parts="auto", from_="relu")
    (site,) = (site for site in report.sites if site.name == "part.act")
    assert site.folded_into is None
    assert site.residual == pytest.approx(abs(to[1] - 1))
    assert torch.equal(model.part.out.weight, weight)


def test_no_gain_is_folded_where_code_reads_all_parameters():
    class Reads(Uses):
        def use(self, x: Tensor) -> Tensor:
            return self.part(x) + sum(parameter.sum() for parameter in self.parameters())

    report = swap(network(Reads)[0], "arelu", preserve=True, parts="auto")
    assert {site.folded_into for site in report.sites} == {None}


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), nn.ReLU()
        self.row = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        return self.act(F.relu(self.fc(x)))


class Derived(Base):
    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x) if x.sum() < 1e9 else x
        return self.act(self.row(x))


def test_the_forward_of_a_base_class_is_code_of_the_block():
    """`super().forward` was not followed: F.relu was in no report, and one new module stood for two calls."""
    model, x = network(Uses)[0], torch.ones(2, 4)
    model.part = Derived()
    report = swap(model, "tanh", parts="auto")
    assert "part.act" not in names(report)
    assert {place.path: place.activations for place in report.left if place.path == "part"} == {"part": ("relu",)}
    assert "part.act" in left(report)
    assert count_kernels(model, x) == 3
    assert calls_once(Base(), "act")
    assert not calls_once(Derived(), "act")


class MadeInForward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.ReLU()(x)


class MadeByAFunction(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return rectify(x) if x.sum() < 1e9 else x


class LookedUp(nn.Module):
    name = "relu"

    def forward(self, x: Tensor) -> Tensor:
        return getattr(F, self.name)(x) if x.sum() < 1e9 else x


class LookedUpLater(LookedUp):
    def forward(self, x: Tensor) -> Tensor:
        function = getattr(F, self.name)
        function.__name__.lower()
        return function(x) if x.sum() < 1e9 else x


class CalledByItsName(LookedUp):
    def forward(self, x: Tensor) -> Tensor:
        return getattr(F, self.name).__call__(x) if x.sum() < 1e9 else x


class OfALibrary(LookedUp):
    name = "nn"

    def forward(self, x: Tensor) -> Tensor:
        library = getattr(torch, self.name)
        return library.functional.relu(x) if x.sum() < 1e9 else x


def rectify(x: Tensor) -> Tensor:
    return nn.ReLU()(x)


@pytest.mark.parametrize("kind", [MadeInForward, MadeByAFunction, LookedUp, LookedUpLater, CalledByItsName, OfALibrary])
def test_activations_that_forward_makes_or_looks_up_are_not_passed_over(kind: type[nn.Module]):
    """The network was swapped as proved, and this call of ReLU was in no report."""
    with pytest.raises(InputError, match="cannot prove the activation calls"):
        swap(nn.Sequential(nn.Linear(4, 4), kind(), nn.ReLU()), "tanh")
    report = swap(nn.Sequential(nn.Linear(4, 4), kind(), nn.Sequential(nn.Linear(4, 4), nn.ReLU())), parts="auto")
    assert [place.path for place in report.left] == ["1"]


def test_a_library_that_is_looked_up_calls_nothing_by_itself():
    """As accelerate asks for the library of a device, which the losses of transformers lead to."""

    class AsksForADevice(nn.Module):
        device = "cpu"

        def forward(self, x: Tensor) -> Tensor:
            library = getattr(torch, self.device)
            here = getattr(torch, self.device).is_available() and library.current_device() == "cpu"
            return x + 1 if here else x

    assert len(swap(nn.Sequential(nn.Linear(4, 4), AsksForADevice(), nn.ReLU()), "tanh").sites) == 1


def test_methods_that_made_the_children_do_not_count():
    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.make()

        def make(self) -> None:
            self.layer, self.classes = nn.Linear(4, 4), (nn.Linear, nn.ReLU)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) if x.sum() < 1e9 else x

    assert len(swap(nn.Sequential(Made(), nn.ReLU()), "tanh").sites) == 1


def test_what_is_read_from_the_source():
    assert uses_of(Uses(), "part", 0) == ["called"]
    assert uses_of(Uses(), "list", 1) == ["called"]
    assert uses_of(Uses(), "list", 0) == ["other"]
    assert set(uses_of(Indexed(), "row", 0)) == {"called", "indexed"}
    assert set(uses_of(Iterated(), "row", 0)) == {"called", "other"}  # what it overrides, too
    assert uses_of(Uses(), "proved", 0) == []
    assert {"encode", "act"}.isdisjoint(names_inside(Uses()))
    assert "encode" in names_inside(Method()) & names_inside(MethodByName()) & names_inside(Handed())
    assert ANYTHING in names_inside(AnyMethod())
    assert ANYTHING not in names_inside(MethodByName())


def test_what_is_asked_by_identity():
    class Asks(nn.Module):
        def forward(self, x: Tensor, mask: Tensor, pair: tuple[Tensor, Tensor]) -> Tensor:
            x = x if mask is None or self.training is True else x * mask
            return x if pair[1] is None else x + pair[1]

    class AsksItself(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if self.training is None else -x

    assert compared_by_identity(nn.Sequential(Asks())) == {"mask", ANYTHING}
    assert compared_by_identity(AsksItself()) == set()
