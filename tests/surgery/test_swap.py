"""Surgery on networks small enough to know every call."""

import copy
import io
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.activations.parameters import activation_parameters
from arelu_meta.errors import InputError
from arelu_meta.surgery import restore, swap
from tests.surgery.counting import count_calls, count_kernels

EXCESS = 1 / (1 + math.exp(8))  # sigmoid(-8), where preserve starts beta


class Inner(nn.Module):
    """Two sites per call: one module, one function."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.act(self.fc(x)) - 0.1)


class Everything(nn.Module):
    """3 calls of one module, 3 of functions and methods, a loop over 3 blocks of 2, a block of 2 called twice: 16."""

    SITES = 3 + 3 + 3 * 2 + 2 * 2

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))
        self.blocks = nn.ModuleList(Inner() for _ in range(3))
        self.twice = Inner()
        self.gate = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:3]:
            x = self.relu(layer(x))
        x = F.relu(self.layers[3](x), inplace=True)
        x = torch.relu(self.layers[4](x))
        x = self.layers[5](x).relu_()
        for block in self.blocks:
            x = x + block(x)
        x = F.dropout(x, 0.5, training=self.training)
        return self.twice(self.twice(x)) * self.gate(x)


class SharedThreeTimes(nn.Module):
    def __init__(self, act: nn.Module | None = None) -> None:
        super().__init__()
        self.a, self.b, self.c, self.act = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), act or nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.c(self.act(self.b(self.act(self.a(x))))))


def output(model: nn.Module, x: Tensor) -> Tensor:
    torch.manual_seed(0)
    with torch.no_grad():
        return model(x)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def everything() -> Everything:
    torch.manual_seed(0)
    return Everything()


@pytest.mark.parametrize("training", [True, False])
def test_every_call_gets_a_module_of_its_own(everything: Everything, x: Tensor, training: bool):
    everything.train(training)
    assert count_kernels(everything, x) == Everything.SITES
    report = swap(everything, "arelu")
    names = [site.name for site in report.sites]
    assert len(set(names)) == Everything.SITES
    assert report.parameters == 2 * Everything.SITES
    assert count_kernels(everything, x) == 0
    assert count_calls(everything, names, x) == dict.fromkeys(names, 1)
    assert isinstance(everything, Everything)


@pytest.mark.parametrize("training", [True, False])
def test_relu_for_relu_changes_no_bit(everything: Everything, x: Tensor, training: bool):
    """The wiring alone: same functions at the same places, dropout in both modes."""
    everything.train(training)
    before = output(everything, x)
    report = swap(everything, "relu", from_="relu")
    assert len(report.sites) == Everything.SITES
    assert torch.equal(output(everything, x), before)
    everything.train(not training)
    assert not torch.equal(output(everything, x), before)  # dropout still follows the mode


def test_sites_learn_apart(x: Tensor):
    model = SharedThreeTimes()
    swap(model, "arelu")
    model(x[:, :3]).sum().backward()
    betas = [model.act.beta.grad, model.act_2.beta.grad, model.act_3.beta.grad]
    assert len({float(beta) for beta in betas}) == 3
    assert all(float(beta) != 0 for beta in betas)


def test_old_weights_keep_their_names(everything: Everything):
    before = everything.state_dict()
    swap(everything, "arelu")
    after = everything.state_dict()
    assert set(before) < set(after)
    assert {name.rpartition(".")[2] for name in set(after) - set(before)} == {"alpha", "beta"}
    missing, unexpected = everything.load_state_dict(before, strict=False)
    assert not unexpected
    assert set(missing) == set(after) - set(before)


def test_copies_pickles_state_dicts_and_export(everything: Everything, x: Tensor):
    report = swap(everything, "arelu")
    everything.eval()
    expected = output(everything, x)
    assert torch.equal(output(copy.deepcopy(everything), x), expected)
    assert torch.equal(output(pickle.loads(pickle.dumps(everything)), x), expected)
    buffer = io.BytesIO()
    torch.save(everything.state_dict(), buffer)
    buffer.seek(0)
    torch.manual_seed(7)
    fresh = Everything().eval()
    swap(fresh, "arelu")
    assert not torch.equal(output(fresh, x), expected)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(output(fresh, x), expected)
    exported = torch.export.export(everything, (x,)).module()
    torch.testing.assert_close(exported(x), expected)
    loaded = pickle.loads(pickle.dumps(everything))
    restore(loaded, report)
    assert type(loaded) is Everything


@pytest.mark.parametrize("preserve", [True, False])
def test_restore_is_bit_exact(everything: Everything, x: Tensor, preserve: bool):
    everything.eval()
    before, keys, text = output(everything, x), list(everything.state_dict()), str(everything)
    weights = copy.deepcopy(everything.state_dict())
    report = swap(everything, "arelu", preserve=preserve)
    assert not torch.equal(output(everything, x), before)
    twin = copy.deepcopy(everything)
    for model in (everything, twin):
        restore(model, report)
        assert torch.equal(output(model, x), before)
        assert list(model.state_dict()) == keys
        assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
        assert type(model) is Everything
        assert str(model) == text


def test_restore_gives_back_a_trained_weight_with_its_gain():
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    report = swap(model, "arelu", preserve=True, beta=0.0)
    with torch.no_grad():
        model[2].weight.fill_(2.0)
    restore(model, report)
    assert model[2].weight.item() == 3.0  # the gain at beta 0 is 1.5


def test_restore_refuses_another_network(everything: Everything):
    report = swap(everything, "arelu")
    with pytest.raises(InputError, match="has no AReLU at 'relu'; the report is not its own"):
        restore(Everything(), report)


def test_a_shared_prelu_is_shared_again_after_restore():
    model = SharedThreeTimes(nn.PReLU())
    report = swap(model, "arelu")
    assert [site.shared for site in report.sites] == [3, 3, 3]
    restore(model, report)
    assert [name for name, _ in model.named_parameters()] == [
        "a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias", "act.weight",
    ]  # fmt: skip


class SkipsAroundInPlace(nn.Module):
    """relu overwrites h before h is added: 2 relu(h), not h + relu(h)."""

    def __init__(self, across: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)) if across else nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(x)
        return self.act(h) + h


@pytest.mark.parametrize("across", [True, False])
def test_what_an_in_place_activation_overwrites_is_overwritten_still(x: Tensor, across: bool):
    model = SkipsAroundInPlace(across)
    before = output(model, x)
    swap(model, "prelu", preserve=True)
    assert torch.equal(output(model, x), before)
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_preserve_starts_arelu_at_the_bound_and_folds_the_gain():
    """relu -> 0.01 below zero and 1 + sigmoid(-8) above; the next weight, 3, becomes 3 / (1 + sigmoid(-8))."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(0.0)
        model[4].weight.fill_(3.0)
    report = swap(model.eval(), "arelu", preserve=True)
    (site,) = report.sites
    assert site.folded_into == "4"
    assert site.residual == pytest.approx(0.01 / (1 + EXCESS), rel=1e-5)
    assert model[4].weight.item() == pytest.approx(3 / (1 + EXCESS), rel=1e-6)
    assert model(torch.tensor([[2.0]])).item() == pytest.approx(6.0, rel=1e-6)
    assert model(torch.tensor([[-2.0]])).item() == pytest.approx(-2.0 * 0.01 * 3 / (1 + EXCESS), rel=1e-5)
    assert model[1].alpha.requires_grad
    model(torch.tensor([[-2.0]])).backward()
    assert model[1].alpha.grad.item() != 0


def test_nothing_is_folded_past_a_second_reader_or_a_second_use():
    class TwoReaders(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            h = self.act(self.first(x))
            return self.second(h) + h

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act = nn.Linear(4, 4), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.act(self.layer(x)))

    tied_weight = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    tied_weight[2].weight = tied_weight[0].weight
    for model in (TwoReaders(), Tied(), tied_weight):
        (site,) = swap(model, "arelu", preserve=True).sites
        assert site.folded_into is None
        assert site.residual == pytest.approx(0.01, rel=1e-5)


def test_residual_without_folding_is_the_larger_of_the_two_slopes():
    """Leaky ReLU's 0.2 is in AReLU's reach, so the excess above zero is what is left."""
    (site,) = swap(nn.Sequential(nn.LeakyReLU(0.2)), "arelu", preserve=True).sites
    assert site.residual == pytest.approx(EXCESS, rel=1e-3)


@pytest.mark.parametrize("old", [nn.ReLU(), nn.LeakyReLU(0.3), nn.PReLU(4), nn.PReLU()])
@pytest.mark.parametrize("new", ["prelu", "comb", "comb_paper", "leaky_relu"])
def test_preserve_is_exact_where_the_activation_can(old: nn.Module, new: str, x: Tensor):
    model = nn.Sequential(nn.Linear(4, 4), old, nn.Linear(4, 4))
    if isinstance(old, nn.PReLU):
        old.weight.data = torch.linspace(0.1, 0.4, old.weight.numel())
    before = output(model, x)
    kinds = ("relu", "leaky_relu", "prelu")
    (site,) = swap(model, new, from_=kinds, preserve=True).sites
    if new != "prelu" and isinstance(old, nn.PReLU) and old.weight.numel() == 4:
        assert site.residual == pytest.approx(0.15, rel=1e-5)  # one slope, 0.25, for 0.1 to 0.4
    else:
        assert site.residual == pytest.approx(0, abs=1e-7)
        torch.testing.assert_close(output(model, x), before)


def test_what_cannot_be_preserved_is_reported():
    """Gelu's slope at 0- is 1/2, AReLU's 0.01."""
    (site,) = swap(nn.Sequential(nn.GELU()), "arelu", preserve=True).sites
    assert site.residual == pytest.approx(0.49, abs=0.01)


def test_the_bound_of_relu6_is_kept_and_taken_away_again():
    """min(AReLU, 6) leaves 0.01 below zero; prelu at slope 0 nothing. Without `preserve` there is no bound."""
    x = torch.tensor([[-100.0, -1.0, 0.5, 5.0, 7.0, 1000.0]])
    wanted = torch.tensor([[-1.0, -0.01, 0.5, 5.0, 6.0, 6.0]])
    model = nn.Sequential(nn.ReLU6(), nn.Linear(6, 2))
    report = swap(model, "arelu", preserve=True)
    (site,) = report.sites
    assert (site.new, site.parameters, site.folded_into) == ("AReLU up to 6", 2, None)
    assert site.residual == pytest.approx(0.01, rel=1e-5)
    torch.testing.assert_close(model[0](x), wanted, rtol=1e-3, atol=0)
    assert list(activation_parameters(model)) == ["0.alpha", "0.beta"]
    restore(model, report)
    assert type(model[0]) is nn.ReLU6
    exact = nn.Sequential(nn.ReLU6())
    swap(exact, "prelu", preserve=True)
    assert torch.equal(exact(x), nn.ReLU6()(x))
    free = nn.Sequential(nn.ReLU6())
    swap(free, "relu")
    assert free(x).max() == 1000


class Masked(nn.Module):
    """`mask is None` must not be answered by a stand-in."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x * mask
        return F.relu(self.fc(x))


def test_optional_arguments_are_traced_as_they_are_given(x: Tensor):
    class Caller(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain, self.masked = Masked(), Masked()

        def forward(self, x: Tensor) -> Tensor:
            return self.masked(self.plain(x), mask=x > 0)

    model = Caller()
    before = output(model, x)
    swap(model, "relu", from_="relu")
    assert torch.equal(output(model, x), before)
    with pytest.raises(InputError, match="mask was None when the activations were swapped"):
        model.plain(x, torch.ones(4))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        return self.act(x) if x.sum() > 0 else x


class AsksForTheType(Branches):
    def forward(self, x: Tensor) -> Tensor:
        return self.act(x) if isinstance(x, Tensor) else x


class Remembers(Branches):
    def forward(self, x: Tensor) -> Tensor:
        self.last = self.act(self.fc(x))
        return self.last


class DrawsLots(Branches):
    def forward(self, x: Tensor) -> Tensor:
        return self.act(x) if torch.rand(()) < 0.5 else x


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Branches, "control flow"),
        (AsksForTheType, "branches on the type of a value"),
        (Remembers, "stores last on itself"),
        (DrawsLots, "draws random numbers"),
    ],
)
def test_what_no_trace_proves_is_refused_with_its_sites(kind: type[nn.Module], reason: str):
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), kind())
    state = torch.random.get_rng_state()
    with pytest.raises(InputError, match=reason) as caught:
        swap(model, "arelu")
    assert "sites found: 1 (gelu), 2.act (relu)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not hasattr(model[2], "last")
    assert isinstance(model[1], nn.GELU)


def test_a_branching_block_without_activations_is_left_alone():
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.softmax(-1) if x.shape[0] > 1 else x

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Attention())
    assert [site.name for site in swap(model, "arelu").sites] == ["1"]

    def hidden(x: Tensor) -> Tensor:
        return F.relu(x)

    class Hides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return hidden(x) if x.shape[0] > 1 else x

    with pytest.raises(InputError, match="1 cannot be traced"):
        swap(nn.Sequential(nn.ReLU(), Hides()), "arelu")


def test_sites_inside_torch_s_own_blocks_are_refused():
    layer = nn.TransformerEncoderLayer(4, 1, 4, batch_first=True)
    with pytest.raises(InputError, match="0 applies its activation inside torch's TransformerEncoderLayer"):
        swap(nn.Sequential(layer, nn.ReLU()), "arelu")
    with pytest.raises(InputError, match="inside torch's RNN"):
        swap(nn.Sequential(nn.RNN(4, 4, nonlinearity="relu")), "arelu")


def test_where_picks_single_calls_of_a_shared_module(x: Tensor):
    x = x[:, :3]
    model = SharedThreeTimes()
    before = output(model, x)
    report = swap(model, "prelu", where="act_2", init=0.5)
    assert [site.name for site in report.sites] == ["act_2"]
    with torch.no_grad():
        by_hand = F.relu(model.c(F.leaky_relu(model.b(F.relu(model.a(x))), 0.5)))
    assert torch.equal(output(model, x), by_hand)
    second = swap(model, "arelu", where=lambda name: name == "act")  # again, in a block written anew before
    assert [site.name for site in second.sites] == ["act"]
    restore(model, second)
    assert torch.equal(output(model, x), by_hand)
    restore(model, report)
    assert torch.equal(output(model, x), before)


def test_gates_stay_unless_asked_for(everything: Everything):
    swap(everything, "arelu")
    assert isinstance(everything.gate, nn.Sigmoid)
    (site,) = swap(everything, "tanh", from_="sigmoid").sites
    assert (site.name, site.old, site.new) == ("gate", "Sigmoid", "Tanh")


def test_the_table_names_every_site():
    lines = str(swap(SharedThreeTimes(), "arelu")).splitlines()
    assert lines[0] == "SharedThreeTimes: 3 sites to arelu, 6 parameters added"
    assert [line.split()[:4] for line in lines[2:]] == [[f"act{n}", "ReLU", "AReLU", "3"] for n in ("", "_2", "_3")]


def test_new_parameters_take_the_network_s_type_and_mode():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).double().eval()
    swap(model, "prelu")
    assert model[1].weight.dtype is torch.float64
    assert not model[1].training


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (nn.Sequential(nn.ReLU()), {"to": "arleu"}, "unknown activation 'arleu'; did you mean 'arelu'?"),
        (nn.Sequential(nn.ReLU()), {"from_": "rellu"}, "unknown activation in `from_`: 'rellu'; did you mean 'relu'?"),
        (nn.Sequential(nn.ReLU()), {"from_": ()}, "`from_` is empty; name activations to replace, or leave it out"),
        (nn.Sequential(nn.ReLU()), {"alpa": 1}, "unknown option of activation 'arelu': 'alpa'; did you mean 'alpha'?"),
        (
            nn.Sequential(nn.Tanh()),
            {"from_": "relu"},
            "Sequential applies none of relu; it has tanh; name those to replace in `from_`, or leave them as they are",
        ),
        (nn.Sequential(nn.ReLU()), {"where": "x*"}, "`where`: 'x*' fits none of the 1 sites: 0"),
        (
            nn.Sequential(nn.ReLU()),
            {"to": "maxout"},
            "'maxout' takes 2 inputs per output, so it cannot stand where the layer before has one; "
            "build the network with it instead",
        ),
        (nn.ReLU(), {}, "the network is a single ReLU; put it into an nn.Sequential to swap it"),
        (
            nn.DataParallel(nn.Sequential(nn.ReLU())),
            {},
            "swap before wrapping: DataParallel hides the network's own forward pass",
        ),
    ],
)
def test_wrong_input_is_one_line(model: nn.Module, arguments: dict[str, object], message: str):
    with pytest.raises(InputError) as caught:
        swap(model, **{"to": "arelu", **arguments})
    assert str(caught.value) == message
