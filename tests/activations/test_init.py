"""The registry of activations: names, building by name, class or callable, stock ones, strictness."""

import math

import pytest
import torch
from torch import Tensor, nn

from arelu_meta import activations
from arelu_meta.activations.gain import mean_square
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.registry import own_code

X = torch.linspace(-7, 7, 29, dtype=torch.float64)

FIXED = "celu elu gelu hardswish leaky_relu maxout mish relu relu6 rrelu selu sigmoid softplus squared_relu swish tanh"
LEARNABLE = (
    "apl comb pau prelu slaf star_relu swish_learned xielu arelu elsa arelu_channel acon_c meta_acon dynamic_relu"
)
CONTROL = "identity arelu_frozen relu_gain arelu_unit gain_matched"
PAPER = "maxout_paper slaf_paper comb_paper"

STOCK = {
    "celu": nn.CELU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "hardswish": nn.Hardswish,
    "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "rrelu": nn.RReLU,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "swish": nn.SiLU,
    "tanh": nn.Tanh,
    "prelu": nn.PReLU,
    "identity": nn.Identity,
}

# The published formulas on Python floats, each for itself.
FORMULAS = {
    "celu": lambda x: x if x > 0 else math.expm1(x),
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "hardswish": lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "relu": lambda x: max(0.0, x),
    "relu6": lambda x: min(max(0.0, x), 6.0),
    "rrelu": lambda x: x if x > 0 else x * (1 / 8 + 1 / 3) / 2,
    "selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "swish": lambda x: x / (1 + math.exp(-x)),
    "tanh": lambda x: 1 - 2 / (math.exp(2 * x) + 1),
    "prelu": lambda x: x if x > 0 else 0.25 * x,
    "identity": lambda x: x,
}


class Doubled(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def test_names_by_group():
    for group, names in (("fixed", FIXED), ("learnable", LEARNABLE), ("control", CONTROL), ("paper", PAPER)):
        assert sorted(activations.names(group)) == sorted(names.split())
    assert len(activations.names()) == len(set(activations.names())) == 38


@pytest.mark.parametrize("name", STOCK)
def test_stock_equals_torch(name: str):
    ours, theirs = activations.build(name).double().eval(), STOCK[name]().double().eval()
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    out, expected = ours(x), theirs(y)
    assert torch.allclose(out, expected, rtol=1e-15)
    out.sum().backward()
    expected.sum().backward()
    away = X != 0
    assert torch.allclose(x.grad[away], y.grad[away], rtol=1e-15)


@pytest.mark.parametrize("name", FORMULAS)
def test_stock_equals_the_formula(name: str):
    out = activations.build(name).double().eval()(X)
    expected = torch.tensor([FORMULAS[name](x) for x in X.tolist()], dtype=torch.float64)
    assert torch.allclose(out, expected, rtol=1e-7, atol=1e-12)


def test_every_entry_says_what_it_computes():
    for entry in activations.entries():
        assert entry.summary
        assert entry.source or entry.group in ("control", "paper") or entry.name in ("sigmoid", "tanh")


def test_by_name_class_callable_and_place():
    x = torch.tensor([1.5])
    for given in (Doubled, lambda: Doubled()):
        assert activations.build(given)(x).item() == 3.0
    assert isinstance(activations.build("torch.nn:Hardswish"), nn.Hardswish)
    assert activations.build(Doubled, factor=3.0)(x).item() == 4.5
    assert activations.build(Doubled).activation_name == "Doubled"
    assert activations.build("elu", alpha=0.5).alpha == 0.5


def test_unknown_name_suggests_the_near_one():
    for make in (activations.build, activations.factory):
        with pytest.raises(InputError, match="unknown activation 'arleu'; did you mean 'arelu'"):
            make("arleu")


def test_unknown_option_suggests_the_near_one():
    for make in (activations.build, activations.factory):
        with pytest.raises(InputError, match="option of activation 'arelu': 'alfa'; did you mean 'alpha'"):
            make("arelu", alfa=0.5)


def test_unfit_option_value_is_named():
    with pytest.raises(InputError, match=r"activation 'arelu'.*alpha='abc'"):
        activations.build("arelu", alpha="abc")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("arelu", {"clamp": 3}),
        ("arelu", {"alpha": "x"}),
        ("torch.nn:Linear", {}),
        ("os.path:join", {}),
    ],
)
def test_what_cannot_be_made_is_wrong_input(name: str, options: dict[str, object]):
    with pytest.raises(InputError, match=r"clamp|cannot be made with"):
        activations.build(name, **options)


def test_whole_numbers_start_parameters_too():
    layer = activations.build("arelu", alpha=1, beta=2)
    assert (layer.alpha.item(), layer.beta.item()) == (1.0, 2.0)


def test_a_callable_must_give_a_module():
    with pytest.raises(InputError, match=r"gives a Tensor, not a torch\.nn\.Module"):
        activations.build(lambda: torch.zeros(1))


def test_own_activation_is_listed(monkeypatch):
    monkeypatch.setattr(activations._REGISTRY, "_entries", dict(activations._REGISTRY._entries))

    @activations.register("doubled", parameters=0, summary="2 x")
    class Mine(Doubled):
        pass

    assert "doubled" in activations.names("own")
    assert isinstance(activations.build("doubled"), Mine)
    with pytest.raises(InputError, match="registered already"):
        activations.register("doubled")(Mine)


def test_built_in_names_stay():
    with pytest.raises(InputError, match="'relu' is registered already"):
        activations.register("relu")(Doubled)


@pytest.mark.parametrize("name", activations.names())
def test_every_activation_is_a_base_by_name(name: str):
    """elsa(NAME) is the base plus the attention; gain_matched(NAME) the base over a constant, of ReLU's mean square."""
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    base = activations.build(name).double().eval()
    matched = activations.build(f"gain_matched({name})").double().eval()
    torch.testing.assert_close(matched(x) * matched.gain, base(x))
    assert mean_square(matched.float()) == pytest.approx(0.5, rel=1e-3)
    assert matched.activation_name == f"gain_matched({name})"
    if name == "maxout":
        with pytest.raises(
            InputError, match="'maxout' has fewer outputs than inputs, to which no attention can be added"
        ):
            activations.build(f"elsa({name})")
        return
    elsa = activations.build(f"elsa({name})").double().eval()
    torch.testing.assert_close(elsa(x), base(x) + activations.build("elsa").double()(x))
    for kind in (ClassifySpec, FewShotSpec):
        spec = kind(task="t", data={"dataset": "digits"}, network={"activation": f"elsa({name})"})
        assert spec.network.activation == f"elsa({name})"


def test_bases_within_bases_and_options():
    module = activations.build("gain_matched(elsa(gelu))")
    assert type(module.base.base) is nn.GELU
    assert activations.build("elsa(gelu)", alpha=0.5).alpha.item() == 0.5
    assert own_code("activation", "elsa(gelu)") == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("elsa(gellu)", "unknown activation 'gellu'; did you mean 'gelu'"),
        (
            "relu(gelu)",
            r"'relu\(gelu\)': of the names in brackets there are elsa\(NAME\) and gain_matched\(NAME\) alone",
        ),
        ("elsa(gelu", "of the names in brackets there are"),
    ],
)
def test_wrong_bases_are_one_line(name: str, message: str):
    with pytest.raises(InputError, match=message):
        activations.factory(name)
    with pytest.raises(InputError, match=message):
        ClassifySpec(task="t", data={"dataset": "digits"}, network={"activation": name})
