"""Adapters that move in the inner loop: W + B A, as peft merges it, on every engine."""

import copy
import pickle
from importlib.util import find_spec

import peft
import pytest
import torch
from timm.layers.conv2d_same import Conv2dSame
from torch import Tensor, nn

from arelu_meta import learners
from arelu_meta.errors import InputError
from arelu_meta.learners.engines import build
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.known_layers import is_known
from arelu_meta.learners.low_rank import adapter_names, with_adapters
from tests.learners.small_problems import central_differences, conv4, distance, episodes, gradients, mnist_conv, own_net

LEARN2LEARN = ("learn2learn",) if find_spec("learn2learn") else ()  # it does not build on every Python


def moved_off_zero(network: nn.Module) -> nn.Module:
    """B is zero at the start, where A has no gradient: later it is not."""
    random = torch.Generator().manual_seed(1)
    for name, parameter in network.named_parameters():
        if name.endswith("lora_b"):
            parameter.data = 0.1 * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
    return network


def learner(network: nn.Module, **options: object) -> GradientLearner:
    made = learners.build("maml", network, **{"adapt": "lora", "inner_lr": 0.2, "inner_steps": 2, **options})
    assert isinstance(made, GradientLearner)
    return made


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Linear(6, 5), (4, 6)),
        (lambda: nn.Conv2d(3, 8, 3, stride=2, padding=1), (4, 3, 9, 9)),
        (lambda: nn.Conv2d(3, 8, (1, 3), bias=False), (4, 3, 9, 9)),
    ],
    ids=["linear", "convolution", "flat kernel"],
)
def test_the_weight_is_what_peft_merges(make, shape):
    torch.manual_seed(0)
    plain = nn.Sequential(make())
    ours = moved_off_zero(with_adapters(copy.deepcopy(plain), "lora", rank=3))
    theirs = peft.inject_adapter_in_model(
        peft.LoraConfig(r=3, lora_alpha=3, target_modules=["0"]), copy.deepcopy(plain)
    )
    adapter = theirs[0]
    assert isinstance(adapter, peft.tuners.lora.LoraLayer)
    with torch.no_grad():
        for factor, value in ((adapter.lora_A, ours[0].lora_a), (adapter.lora_B, ours[0].lora_b)):
            factor["default"].weight.copy_(value.view_as(factor["default"].weight))
    x = torch.randn(shape)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)
    adapter.merge()
    merged = copy.deepcopy(plain)
    merged[0].weight.data = ours[0].weight.data + (ours[0].lora_b @ ours[0].lora_a).detach().view_as(plain[0].weight)
    assert torch.allclose(merged[0].weight, adapter.get_base_layer().weight, atol=1e-7)
    assert torch.allclose(ours(x), merged(x), atol=1e-6)
    assert not torch.allclose(ours(x), plain(x), atol=1e-2)


@pytest.mark.parametrize(("make", "size"), [(mnist_conv, 28), (conv4, 16)])
def test_before_the_first_step_nothing_changes(make, size):
    """Bit by bit; and A is drawn as peft draws it, within 1 / sqrt(inputs)."""
    network, x = make().eval(), torch.randn(3, 1, size, size, dtype=torch.float64)
    before = network(x)
    assert with_adapters(network, "head+lora") is network
    assert torch.equal(network(x), before)
    for name in adapter_names(network):
        factor = network.get_parameter(name)
        assert factor.abs().max() <= (factor.shape[1] ** -0.5 if name.endswith("lora_a") else 0)
    assert all(map(is_known, network.modules()))  # computed for all episodes at once, without a check
    assert torch.equal(pickle.loads(pickle.dumps(network))(x), before)


def test_a_step_by_hand():
    """With G the gradient by W + B A, B moves by -lr G A', A by -lr B' G, and neither W nor the bias."""
    torch.manual_seed(0)
    network = moved_off_zero(with_adapters(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double(), "lora", rank=2))
    episode = episodes()[0]
    adapted = learner(network, lora_rank=2, inner_steps=1, inner_lr=0.3).adapt(episode.support_x, episode.support_y)
    layer = network[1]
    x, labels = episode.support_x.flatten(1), nn.functional.one_hot(episode.support_y, 3).double()
    logits = x @ (layer.weight + layer.lora_b @ layer.lora_a).T + layer.bias
    slope = (logits.softmax(1) - labels).T @ x / len(x)
    assert torch.allclose(adapted.parameters["1.lora_b"], layer.lora_b - 0.3 * slope @ layer.lora_a.T, atol=1e-12)
    assert torch.allclose(adapted.parameters["1.lora_a"], layer.lora_a - 0.3 * layer.lora_b.T @ slope, atol=1e-12)
    assert torch.equal(adapted.parameters["1.weight"], layer.weight)
    assert torch.equal(adapted.parameters["1.bias"], layer.bias)


@pytest.mark.parametrize(("adapt", "norm"), [("lora", "batch"), ("head+lora", "group")])
def test_all_engines_give_the_right_meta_gradient(adapt, norm):
    """Of A, B and W of convolutions, 1e-10 apart and as central differences of the loss have it."""
    network, batch = moved_off_zero(with_adapters(conv4("tanh", norm=norm).eval(), adapt)), episodes(size=16)
    found = {}
    for name in ("looped", "vectorised", "higher", *LEARN2LEARN, "recorded"):
        made = learner(network, adapt=adapt)
        made.engine = FuncEngine(vectorise=name != "looped") if name in ("looped", "vectorised") else made.engine
        made.engine = build(name) if name in ("higher", "learn2learn") else made.engine
        if name == "recorded":
            made.record_steps(after=0)
            made.meta_step(batch, progress=0.0)
            gradients(network)
        made.meta_step(batch, progress=0.0)
        found[name] = gradients(network)
        assert (made.recording_seconds > 0) == (name == "recorded")
    for name, gradient in found.items():
        assert distance(gradient, found["looped"]) < 1e-10, name
    looped = learner(network, adapt=adapt)
    looped.engine = FuncEngine(vectorise=False)
    for name in ("blocks.0.0.lora_a", "blocks.2.0.lora_b", "blocks.1.0.weight", "head.lora_b"):
        slope = central_differences(
            lambda: looped.query_loss(batch, 0.0)[0].mean().item(), network.get_parameter(name), most=1
        )
        assert torch.allclose(found["looped"][name].view(-1)[:1], slope, rtol=1e-5, atol=1e-9), name


@pytest.mark.parametrize("method", ["meta_sgd", "mamlpp", "fomaml"])
def test_other_methods_move_adapters_too(method):
    network, episode = own_net("arelu"), episodes()[0]
    made = learners.build(method, network, adapt="lora", lora_rank=2, inner_lr=0.3, inner_steps=1)
    adapted = made.adapt(episode.support_x, episode.support_y)
    moved = {name for name, value in adapted.parameters.items() if not torch.equal(value, network.get_parameter(name))}
    assert moved == {"first.lora_b", "last.lora_b"}  # A moves once B is not zero
    made.load_state(made.state().state_dict())
    made.meta_step(episodes(), progress=0.0)
    assert gradients(network)["first.lora_a"].abs().max() > 0


class Padded(nn.Module):
    """A convolution that pads by itself, one in groups, one whose weight is made of others, and torch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.same = Conv2dSame(1, 6, 3, stride=2)
        self.groups = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(6, 6, 1))
        self.attention = nn.MultiheadAttention(6, 1, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.normed(self.groups(self.same(x))).flatten(2).transpose(1, 2)
        return self.head(self.attention(x, x, x)[0].mean(1))


def test_layers_of_others():
    """Those whose weight is theirs and is called have adapters; a class of somebody else's stays unknown."""
    torch.manual_seed(0)
    network, x = Padded(), torch.randn(2, 1, 7, 7)
    plain = copy.deepcopy(network.same)
    with_adapters(network, "lora", rank=4)
    assert adapter_names(network) == {"same.lora_a", "same.lora_b", "head.lora_a", "head.lora_b"}
    assert network.head.lora_a.shape == (3, 6)  # three outputs: its weight has rank 3 at most
    moved_off_zero(network)
    plain.weight.data += (network.same.lora_b @ network.same.lora_a).detach().view_as(plain.weight)
    assert torch.allclose(network.same(x), plain(x), atol=1e-6)
    assert not is_known(network.same)
    assert type(network.same).__module__ == Conv2dSame.__module__
    copied = copy.deepcopy(network)
    assert torch.equal(copied(x), network(x))
    assert network.same.weight is not copied.same.weight


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.LayerNorm(16)), {}, "Sequential has no linear layer or convolution without"),
        (own_net(), {"lora_rank": 7}, "lora_rank = 7; the layers of OwnNet have ranks up to 6, so give 1 to 6"),
        (own_net(), {"lora_rank": 0}, "lora_rank = 0; the layers of OwnNet have ranks up to 6"),
        (with_adapters(own_net(), "lora"), {"lora_rank": 2}, "OwnNet has adapters of rank 4, not of `lora_rank` 2"),
        (own_net(), {"adapt": "head", "lora_rank": 2}, "adapt 'head' has no adapters; leave `lora_rank` out"),
    ],
)
def test_wrong_input(network, options, message):
    with pytest.raises(InputError, match=message):
        learner(network, **options)


def test_a_network_that_has_adapters_keeps_them():
    network = with_adapters(own_net(), "lora")
    factor = network.get_parameter("last.lora_a")
    assert learner(network).network.get_parameter("last.lora_a") is factor
    learner(network, adapt="all")  # they are parameters as any other
