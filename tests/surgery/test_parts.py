"""Networks whose root no trace follows, swapped part by part: what is proved, what left, never half of a call."""

import copy
import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.surgery import SwapReport, restore, swap
from tests.surgery.counting import count_calls, count_kernels


class Block(nn.Module):
    """Two sites: a module and a function."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act, self.out = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.out(self.act(self.fc(x))))


class Untraceable(nn.Module):
    """A branch on values around all that it holds."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        if x.isnan().any():
            return x
        for part in self.parts:
            x = part(x)
        return x


@pytest.fixture
def x() -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(1))


def left(report: SwapReport) -> dict[str, tuple[str, ...]]:
    return {place.path: place.activations for place in report.left}


@pytest.mark.parametrize("training", [True, False])
def test_the_largest_parts_that_can_be_proved_are_swapped(x: Tensor, training: bool):
    torch.manual_seed(0)
    model = Untraceable(Block(), nn.Sequential(Block(), Block()), Untraceable(Block())).train(training)
    before, keys = model(x), list(model.state_dict())
    assert count_kernels(model, x) == 8
    report = swap(model, "tanh", parts="auto")
    assert report.parts == ("parts.0", "parts.1", "parts.2.parts.0")
    names = [site.name for site in report.sites]
    assert count_kernels(model, x) == 0
    assert count_calls(model, names, x) == dict.fromkeys(names, 1)
    assert len(set(names)) == 8
    assert report.left == ()
    for network in (copy.deepcopy(model), model):
        restore(network, report)
        assert torch.equal(network(x), before)
        assert list(network.state_dict()) == keys
        assert type(network.parts[0]) is Block


def test_without_parts_the_refusal_names_the_remedy():
    model = Untraceable(Block(), Block())
    with pytest.raises(InputError, match=r'; give `parts="auto"` to swap the 4 that can be proved$') as caught:
        swap(model, "arelu")
    assert "\n" not in str(caught.value)
    assert isinstance(model.parts[0].act, nn.ReLU)
    with pytest.raises(InputError, match="`parts` is \"auto\" or None, not 'all'"):
        swap(model, "arelu", parts="all")  # type: ignore[arg-type]


def test_a_network_of_which_no_part_can_be_proved_is_refused_as_before():
    class Alone(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x) if x.sum() > 0 else x

    for parts in ("auto", None):
        with pytest.raises(InputError, match="cannot prove the activation calls") as caught:
            swap(Alone(), "arelu", parts=parts)
        assert "parts=" not in str(caught.value)


def test_a_network_that_can_be_traced_is_swapped_whole():
    report = swap(nn.Sequential(Block()), "arelu", parts="auto")
    assert (report.parts, report.left, len(report.sites)) == ((), (), 2)


def test_what_untraceable_code_applies_itself_is_left_and_named(x: Tensor):
    class Mixed(Untraceable):
        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(super().forward(x)) if x.shape[0] > 0 else self.last(x)

        def last(self, x: Tensor) -> Tensor:
            return x.relu()

    model = Mixed(Block())
    report = swap(model, "tanh", parts="auto")
    assert left(report) == {"": ("gelu", "relu")}
    assert count_kernels(model, x) == 1
    text = str(report).splitlines()
    assert text[-2] == "proved part by part, once per call of a part: parts.0"
    assert text[-1].startswith("left as it was: its forward (gelu, relu): cannot be traced: ")


def test_a_part_that_runs_several_times_has_one_site_for_each_of_its_calls(x: Tensor):
    class Loops(Untraceable):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(int(x.shape[0])):
                x = self.parts[0](x)
            return x

    model = Loops(Block())
    report = swap(model, "tanh", parts="auto")
    names = [site.name for site in report.sites]
    assert names == ["parts.0.act", "parts.0.relu"]
    assert count_calls(model, names, x) == dict.fromkeys(names, 8)
    assert count_kernels(model, x) == 0


class CallsTwice(nn.Module):
    """Its inner block would be written into it, and be left as it is for other callers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.inner(x))


def test_a_block_that_others_call_too_is_a_part_of_its_own(x: Tensor):
    shared = Block()
    model = Untraceable(CallsTwice(shared), shared)
    assert count_kernels(model, x) == 6
    report = swap(model, "tanh", parts="auto")
    assert count_kernels(model, x) == 0
    assert report.parts == ("parts.0.inner",)
    assert len(report.sites) == 2


def test_an_activation_that_two_parts_share_is_swapped_in_both(x: Tensor):
    first, second = Block(), Block()
    second.act = first.act
    model = Untraceable(first, second)
    before = model(x)
    report = swap(model, "tanh", parts="auto")
    assert [site.name for site in report.sites] == ["parts.0.act", "parts.0.relu", "parts.1.act", "parts.1.relu"]
    assert count_kernels(model, x) == 0
    restore(model, report)
    assert model.parts[0].act is model.parts[1].act
    assert torch.equal(model(x), before)


class OptionalMask(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.act(self.fc(x))
        return x if mask is None else F.relu(x * mask)


class RequiredMask(Block):
    def forward(self, x, mask):
        x = self.act(self.fc(x))
        return F.relu(x * mask) if mask is not None else x


class Flag(Block):
    def forward(self, x: Tensor, again: bool = False) -> Tensor:
        x = self.act(self.fc(x))
        return F.relu(x - 1) if again else x


class AnyKeywords(Block):
    def forward(self, x: Tensor, **settings: bool) -> Tensor:
        x = self.act(self.fc(x))
        return F.relu(x - 1) if settings.get("again") else x


@pytest.mark.parametrize("kind", [OptionalMask, RequiredMask, Flag, AnyKeywords])
def test_an_activation_that_only_some_arguments_reach_is_not_lost(kind: type[nn.Module]):
    """A trace with the defaults would not see it; the module before it is called by all, at one place."""
    report = swap(Untraceable(kind()), "tanh", parts="auto")
    assert [site.name for site in report.sites] == ["parts.0.act"]
    assert left(report) == {"parts.0": ("relu",)}


class MaskWithoutActivation(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 2.0, add: bool = False) -> Tensor:
        x = self.act(self.fc(x)) * scale
        x = x if mask is None else x * mask
        return x + 1 if add else x


def test_arguments_that_change_no_activation_are_taken(x: Tensor):
    model = Untraceable(MaskWithoutActivation())
    report = swap(model, "arelu", preserve=True, parts="auto")
    assert report.parts == ("parts.0",)
    assert report.left == ()
    mask = torch.full((4,), 2.0)
    part = model.parts[0]
    wanted = part.act(part.fc(x)) * 3.0 * mask + 1
    assert torch.equal(part(x, mask, 3.0, add=True), wanted)


class Kind(enum.Enum):
    ONCE, TWICE = 1, 2


class ByEnum(Block):
    def forward(self, x: Tensor, kind: Any = Kind.TWICE) -> Tensor:
        x = F.gelu(self.fc(x))
        return F.relu(self.fc(x)) if kind is Kind.TWICE else x


class ByRequiredEnum(Block):
    def forward(self, x: Tensor, kind: Kind) -> Tensor:
        x = F.gelu(self.fc(x))
        return F.relu(self.fc(x)) if kind is Kind.TWICE else x


class ByString(Block):
    def forward(self, x: Tensor, mode: str = "double") -> Tensor:
        return F.gelu(self.fc(x)) * {"double": 2.0}.get(mode, 1.0)


class ByNumber(Block):
    def forward(self, x: Tensor, mode: int = 2) -> Tensor:
        return F.gelu(self.fc(x)) * {2: 2.0}.get(mode, 1.0)


class BySentinel(Block):
    def forward(self, x, mask=Kind):
        x = F.gelu(self.fc(x))
        return x if mask is Kind else x * mask


class AnnotatedMask(Block):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = F.gelu(self.fc(x))
        return x if mask is None else x * mask


class FirstIsNone(Block):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(4) if x is None else F.gelu(self.fc(x))


class Pair(Block):
    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        x, mask = pair
        x = F.gelu(self.fc(x))
        return x if mask is None else x * mask


class PairModule(Block):
    """The module is called in any case; F.relu only where the trace does not look."""

    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        x = self.act(self.fc(pair[0]))
        return F.gelu(x) if pair[1] is None else x


@pytest.mark.parametrize(
    "kind",
    [ByEnum, ByRequiredEnum, ByString, ByNumber, BySentinel, AnnotatedMask, FirstIsNone, Pair, PairModule],
)
def test_a_part_is_not_written_for_arguments_that_no_tensor_stands_for(kind: type[nn.Module]):
    """A tensor was traced in their place: a branch was lost, an output halved, a TypeError came with the next call."""
    model = Untraceable(kind(), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    report = swap(model, "tanh", parts="auto")
    assert report.rewritten == ()
    assert "gelu" in left(report)["parts.0"]
    assert "parts.1.1" in [site.name for site in report.sites]
    assert type(model.parts[0]) is kind


def test_none_that_no_activation_depends_on_may_be_asked_of_items(x: Tensor):
    class Harmless(Block):
        def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
            x = self.act(self.fc(pair[0]))
            return x if pair[1] is None else x * pair[1]

    model = Untraceable(Harmless())
    assert swap(model, "tanh", parts="auto").parts == ("parts.0",)
    assert torch.equal(model.parts[0]((x, None)), torch.tanh(model.parts[0].fc(x)))


def test_what_an_in_place_part_overwrites_is_overwritten_still(x: Tensor):
    """The caller adds what the part has overwritten: 2 relu(h), not h + relu(h)."""

    class Skips(Untraceable):
        def forward(self, x: Tensor) -> Tensor:
            h = x * 1.0
            return self.parts[0](h) + h if h.sum() < 1e9 else h

    model = Skips(nn.Sequential(nn.ReLU(inplace=True), nn.Identity()))
    before = model(x)
    report = swap(model, "prelu", preserve=True, parts="auto")
    assert len(report.sites) == 1
    assert torch.equal(model(x), before)


class Single(nn.Module):
    """One untraceable block around activation modules of its own."""

    def __init__(self, act: nn.Module | None = None) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), act or nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        if self.act is not None:
            x = self.act(x)
        return x if x.sum() > 0 else -x


class InALoop(Single):
    def forward(self, x: Tensor) -> Tensor:
        while x.sum() > 0:
            x = self.act(self.fc(x)) - 1
        return x


class AtTwoPlaces(Single):
    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.fc(x)) if x.sum() > 0 else self.act(x)


class ByAnotherMethod(Single):
    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.act(x)) if x.sum() > 0 else x

    def again(self, x: Tensor) -> Tensor:
        return self.act(x)


class ByIteration(Single):
    def forward(self, x: Tensor) -> Tensor:
        x = self.act(x) if x.sum() > 0 else x
        for child in self.children():
            x = child(x)
        return x


class ByHandingSelfOn(Single):
    def forward(self, x: Tensor) -> Tensor:
        return apply_activation(self, self.act(x)) if x.sum() > 0 else x


class InAFunction(Single):
    def forward(self, x: Tensor) -> Tensor:
        def twice(x: Tensor) -> Tensor:
            return self.act(x)

        return twice(twice(x)) if x.sum() > 0 else x


def with_a_forward_of_its_own() -> nn.Module:
    block = Single()
    block.forward = lambda x: block.act(block.act(x)) if x.sum() > 0 else x
    return block


def apply_activation(module: nn.Module, x: Tensor) -> Tensor:
    return module.act(x)


def test_an_activation_module_that_its_block_calls_at_one_place_is_a_part(x: Tensor):
    model = nn.Sequential(Single())
    before = model(x)
    report = swap(model, "tanh", parts="auto")
    assert report.parts == ("0.act",)
    assert report.left == ()
    assert isinstance(model[0].act, nn.Tanh)
    restore(model, report)
    assert torch.equal(model(x), before)


@pytest.mark.parametrize(
    "block",
    [
        *(InALoop(), AtTwoPlaces(), ByAnotherMethod(), ByIteration(), ByHandingSelfOn(), InAFunction()),
        with_a_forward_of_its_own(),
    ],
)
def test_an_activation_module_with_more_calls_is_left(block: nn.Module):
    model = nn.Sequential(block, Block())
    report = swap(model, "tanh", parts="auto")
    assert [site.name for site in report.sites] == ["1.act", "1.relu"]
    assert left(report)["0.act"] == ("relu",)


def test_an_activation_module_that_works_in_place_is_left():
    model = nn.Sequential(Single(nn.ReLU(inplace=True)), Block())
    assert left(swap(model, "tanh", parts="auto")) == {"0.act": ("relu",)}


def test_a_module_of_two_names_is_replaced_at_both():
    class TwoNames(Single):
        def __init__(self) -> None:
            super().__init__()
            self.other = self.act

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.act(x)) if x.sum() > 0 else x

    model = nn.Sequential(TwoNames())
    report = swap(model, "tanh", parts="auto")
    assert [site.name for site in report.sites] == ["0.act", "0.other"]
    assert model[0].act is not model[0].other


def test_transformers_of_torch_are_left_and_never_passed_over():
    """A trace keeps nn.TransformerEncoder whole, and its activations were lost without a word."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1, 4), 1, enable_nested_tensor=False)
    with pytest.raises(InputError, match="inside torch's TransformerEncoder"):
        swap(nn.Sequential(encoder, nn.ReLU()), "arelu")
    report = swap(nn.Sequential(encoder, Block()), "arelu", parts="auto")
    assert [site.name for site in report.sites] == ["1.act", "1.relu"]
    assert left(report) == {"0": ()}


@pytest.mark.filterwarnings("ignore:.torch.jit.:FutureWarning")
@pytest.mark.parametrize("around", [nn.Sequential, Untraceable])
@pytest.mark.parametrize(
    "compiled",
    [
        torch.jit.script,
        lambda block: torch.jit.trace(block, torch.ones(8, 4)),
        lambda block: torch.compile(block, backend="eager"),
        lambda block: torch.export.export(block, (torch.ones(8, 4),)).module(),
    ],
    ids=["script", "trace", "compile", "export"],
)
def test_compiled_modules_inside_a_network_are_left_and_never_passed_over(
    compiled: Callable[[nn.Module], nn.Module], around: type[nn.Module]
):
    """They raised an AttributeError, or were lost without a word."""
    model = around(compiled(Block()), Block())
    report = swap(model, "tanh", parts="auto")
    (place,) = report.left
    assert place.reason.startswith("hides its forward pass in a ")
    assert len(report.sites) == 2
    with pytest.raises(InputError, match="cannot prove the activation calls"):
        swap(around(compiled(Block()), Block()), "tanh")


def test_a_network_inside_data_parallel_is_a_part():
    """In a plain nn.Sequential, too, where a trace keeps it whole and it was lost without a word."""
    report = swap(nn.Sequential(nn.DataParallel(Block()), Block()), "tanh", parts="auto")
    assert sorted(report.parts) == ["0.module", "1"]
    assert len(report.sites) == 4


def test_gains_are_folded_inside_a_part_only():
    """act feeds out, which stands in the same part; what reads the part's output is unknown."""
    report = swap(Untraceable(Block(), nn.Linear(4, 4)), "arelu", preserve=True, parts="auto")
    assert [site.folded_into for site in report.sites] == ["parts.0.out", None]


def test_no_gain_is_folded_into_a_weight_that_untraceable_code_may_read():
    class Reads(Untraceable):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) @ self.parts[0].out.weight if x.sum() < 1e9 else x

    report = swap(Reads(Block()), "arelu", preserve=True, parts="auto")
    assert [site.folded_into for site in report.sites] == [None, None]
    tied = Untraceable(Block(), Block())
    tied.parts[1].out.weight = tied.parts[0].out.weight
    assert all(site.folded_into is None for site in swap(tied, "arelu", preserve=True, parts="auto").sites)


def test_where_picks_sites_of_parts():
    model = Untraceable(Block(), Block())
    report = swap(model, "tanh", where="parts.1.*", parts="auto")
    assert [site.name for site in report.sites] == ["parts.1.act", "parts.1.relu"]
    assert report.parts == ("parts.1",)
    assert isinstance(model.parts[0].act, nn.ReLU)


def test_modules_named_like_an_activation_that_compute_something_else_are_reported():
    class Swish(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.beta = nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(self.beta * x)

    report = swap(nn.Sequential(Swish(), nn.ReLU()), "arelu")
    assert [place.path for place in report.left] == ["0"]
    assert "Swish is no activation that is known" in report.left[0].reason
