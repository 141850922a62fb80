"""The check finds what is wrong under vmap, whatever makes it so, and leaves everything as it was."""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import learners
from arelu_meta.data.episodes import Episode
from arelu_meta.learners.engines.func_engine import FuncEngine, OneByOne
from arelu_meta.learners.engines.self_check import difference
from arelu_meta.learners.inner_loop import InnerRule
from tests.learners.small_problems import WAYS, distance, episodes, gradients


class OldStyle(torch.autograd.Function):
    """A cube written for autograd alone, as many are: torch.func cannot take it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


class Middle(nn.Module):
    """A network of others around one operation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 6), nn.Linear(6, WAYS)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))

    def operation(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * self.scale

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.operation(self.first(x.flatten(1))))


class NativeLayerNorm(Middle):
    """torch's kernel below `F.layer_norm`, which nobody takes over: wrong under vmap."""

    def operation(self, x: Tensor) -> Tensor:
        return torch.native_layer_norm(x, [6], self.scale, None, 1e-5)[0].tanh()


class Branch(Middle):
    """A decision that depends on numbers."""

    def operation(self, x: Tensor) -> Tensor:
        return x.tanh() * self.scale if x.sum() > 0 else x.sin() * self.scale


class Cube(Middle):
    def operation(self, x: Tensor) -> Tensor:
        return OldStyle.apply(x.tanh()) * self.scale


class Noisy(Middle):
    """Random in training mode, layer-normalised by hand: there is nothing wrong with it."""

    def operation(self, x: Tensor) -> Tensor:
        return F.dropout(x.tanh(), 0.5, self.training) * self.scale


class TrainOnly(Middle):
    """Random, and wrong under vmap, in training mode alone."""

    def operation(self, x: Tensor) -> Tensor:
        if not self.training:
            return x.tanh() * self.scale
        return F.dropout(torch.native_layer_norm(x, [6], self.scale, None, 1e-5)[0], 0.3).tanh()


class SelectScatter(Middle):
    """torch's is wrong under vmap in first order already."""

    def operation(self, x: Tensor) -> Tensor:
        return torch.select_scatter(x.tanh(), x[:, 0] * self.scale[0], 1, 2)


class Uncopied(Middle):
    def __deepcopy__(self, memo: Any) -> "Uncopied":
        raise TypeError("there is only one of me")


FAULTS = {
    NativeLayerNorm: r"gives another meta-gradient: that of \S+ is off by ",
    SelectScatter: r"gives another meta-gradient: that of \S+ is off by ",
    Branch: "fails: vmap: It looks like",
    Cube: "fails: In order to use an autograd.Function with functorch transforms",
    Uncopied: "cannot be checked: there is only one of me",
}


def plain_meta_gradient(network: nn.Module) -> dict[str, Tensor]:
    """By `torch.autograd.grad` alone, in place on a network that is put back; nothing of ours."""
    batch = episodes()
    parameters = dict(network.named_parameters())
    total = torch.zeros((), dtype=torch.float64)
    for episode in batch:
        loss = F.cross_entropy(network(episode.support_x), episode.support_y)
        inner = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        moved = {n: p - 0.3 * g for (n, p), g in zip(parameters.items(), inner, strict=True)}
        logits = torch.func.functional_call(network, moved, (episode.query_x,))
        total = total + F.cross_entropy(logits, episode.query_y) / len(batch)
    return dict(zip(parameters, torch.autograd.grad(total, list(parameters.values())), strict=True))


@pytest.mark.parametrize("kind", FAULTS)
def test_what_is_wrong_is_said_once_and_computed_right(kind):
    network = kind().double()
    expected = plain_meta_gradient(network)
    learner = learners.build("maml", network, inner_lr=0.3, inner_steps=1)
    with pytest.warns(
        OneByOne, match=f"{kind.__name__}: episodes are computed one after another, as `vmap` {FAULTS[kind]}"
    ):
        learner.meta_step(episodes(), progress=0.0)
    assert distance(gradients(network), expected) < 1e-12
    learner.meta_step(episodes(seed=1), progress=0.0)  # a second warning would be an error


def test_what_is_wrong_in_training_mode_alone_is_found_beside_dropout():
    learner = learners.build("maml", TrainOnly().double(), inner_lr=0.3, inner_steps=1)
    with pytest.warns(OneByOne, match="TrainOnly: .* gives another meta-gradient"):
        learner.meta_step(episodes(), progress=0.0)


@pytest.mark.parametrize("options", [{"padding_idx": 0}, {"scale_grad_by_freq": True}], ids=str)
def test_options_of_an_embedding_that_are_wrong_under_vmap(options):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(4, 5, **options), nn.Flatten(), nn.Tanh(), nn.Linear(80, WAYS)).double()
    tokens = torch.randint(0, 4, (2, 6, 16), generator=torch.Generator().manual_seed(1))
    batch = Episode(tokens, episodes().support_y, tokens.flip(1), episodes().query_y)
    found = {}
    for name, engine in (("func", FuncEngine()), ("looped", FuncEngine(vectorise=False))):
        learner = learners.build("maml", network, inner_lr=0.3, inner_steps=2)
        learner.engine = engine
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OneByOne)
            learner.meta_step(batch, progress=0.0)
        found[name] = gradients(network)
    assert distance(found["func"], found["looped"]) < 1e-12


@pytest.mark.parametrize("kind", [Middle, Noisy])
def test_what_is_right_is_vectorised_without_a_word(kind):
    engine = FuncEngine()
    learner = learners.build("maml", kind().double(), inner_lr=0.3, inner_steps=1)
    learner.engine = engine
    learner.meta_step(episodes(), progress=0.0)
    assert engine.note == ""
    assert list(engine._checked.values()) == [""]


def test_vectorised_without_the_check_it_would_have_been_wrong():
    """The fault that the check guards against, at its size."""
    network = NativeLayerNorm().double()
    expected = plain_meta_gradient(network)
    learner = learners.build("maml", network, inner_lr=0.3, inner_steps=1)
    learner.engine = FuncEngine(vectorise=True)
    learner.meta_step(episodes(), progress=0.0)
    assert distance(gradients(network), expected) > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_check_leaves_no_trace(dtype):
    network, batch = Noisy().to(dtype), episodes(dtype=dtype)
    before, random = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    doubted, trusted = (FuncEngine(vectorise=way, same_draws=True).logits for way in (True, False))
    assert difference(network, InnerRule(lr=1e-9, steps=5), batch, doubted=doubted, trusted=trusted) == ""
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_tiny_inner_rate_does_not_hide_the_fault():
    doubted, trusted = (FuncEngine(vectorise=way, same_draws=True).logits for way in (True, False))
    for first_order, expected in ((False, "gives another meta-gradient"), (True, "")):
        rule = InnerRule(lr=1e-9, steps=1, first_order=first_order)
        batch = episodes(dtype=torch.float32)
        said = difference(NativeLayerNorm(), rule, batch, doubted=doubted, trusted=trusted)
        assert said.partition(":")[0] == expected


@pytest.mark.parametrize("method", ["meta_sgd", "mamlpp", "anil", "boil", "reptile"])
def test_every_method_by_gradient_is_checked(method):
    learner = learners.build(method, Branch(), inner_lr=0.3, inner_steps=1)
    with pytest.warns(OneByOne, match="Branch: episodes are computed one after another"):
        learner.meta_step(episodes(dtype=torch.float32), progress=0.0)


def test_one_episode_needs_no_check():
    """A loop of one is as fast: adapting for use says nothing."""
    batch = episodes(dtype=torch.float32)
    learner = learners.build("maml", Branch(), inner_lr=0.3, inner_steps=1)
    adapted = learner.adapt(batch.support_x[0], batch.support_y[0])
    assert adapted.logits(batch.query_x[0]).shape == (6, WAYS)
    learner.meta_step(batch[:1], progress=0.0)
