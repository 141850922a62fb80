"""The network is a function of its parameters and stays as it was, whatever its forward pass does or raises.

learn2learn's own tests of its MAML are here as facts: shared modules, unused parameters, first order, no gradients.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta import learners
from arelu_meta.learners.functional_network import FunctionalNetwork
from tests.learners.small_problems import WAYS, distance, episodes, gradients

ENGINES = learners.ALL_ENGINES
RATE, STEPS = 0.3, 2


class TwoNames(nn.Module):
    """One layer under two names, as learn2learn's `test_module_shared_params` has it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 6)
        self.last = nn.Linear(6, WAYS)
        self.features = nn.Sequential(nn.Flatten(), self.first, nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.features(x))


class Tied(nn.Module):
    """One tensor in two layers, and one layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(16, 16)
        self.again = nn.Linear(16, 16)
        self.again.weight = self.body.weight
        self.head = nn.Linear(16, WAYS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.again(torch.tanh(self.body(torch.tanh(self.body(x.flatten(1))))))))


class Unused(nn.Module):
    """A layer that the forward pass never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(3, 3)
        self.used = nn.Linear(16, WAYS)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x.flatten(1))


class Remembering(nn.Module):
    """Caches and counts on the module, in a dictionary, and in a buffer that is changed in place and replaced."""

    count: Tensor
    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, WAYS)
        self.calls, self.cache = 0, {}
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(WAYS, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.cache["last"] = self.shown = self.layer(x.flatten(1))
        self.count += 1
        self.average = 0.9 * self.average + 0.1 * self.shown.mean(0).detach()
        return self.shown * (1 + self.average)


class Spectral(nn.Module):
    """A parametrised weight whose power iteration writes into buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 6))
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(6, WAYS))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x.flatten(1))))


NETWORKS = [TwoNames, Tied, Unused, Remembering, Spectral]
SUPPORTED = [
    (kind, engine)
    for kind in NETWORKS
    for engine in ENGINES
    if not (kind is Spectral and engine != "func")  # the libraries do not know parametrised modules
]


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().double()


def everything(network: nn.Module) -> list[object]:
    """All that a network is: attributes and the entries of dictionaries by identity, numbers by value."""
    found: list[object] = []
    for name, module in network.named_modules():
        for key, value in sorted(vars(module).items(), key=lambda item: item[0]):
            entries = sorted((str(k), id(v)) for k, v in value.items()) if isinstance(value, dict) else []
            found.append((name, key, id(value), entries))
    return found + [(name, value.tolist()) for name, value in network.state_dict().items()]


@contextmanager
def left_alone(network: nn.Module) -> Iterator[None]:
    before = everything(network)
    yield
    assert everything(network) == before


def reference(network: nn.Module, method: str = "maml") -> dict[str, Tensor]:
    """Meta-gradient by plain autograd on copies whose parameters are replaced one by one."""
    parameters = dict(network.named_parameters())
    batch, total = episodes(), torch.zeros((), dtype=torch.float64)
    for episode in batch:
        point = dict(parameters)
        for _ in range(STEPS):
            loss = F.cross_entropy(by_hand(network, point, episode.support_x), episode.support_y)
            found = torch.autograd.grad(loss, list(point.values()), create_graph=True, allow_unused=True)
            for name, gradient in zip(point, found, strict=True):
                if gradient is not None:
                    point[name] = point[name] - RATE * (gradient.detach() if method == "fomaml" else gradient)
        total = total + F.cross_entropy(by_hand(network, point, episode.query_x), episode.query_y) / len(batch)
    outer = torch.autograd.grad(total, list(parameters.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(parameters, outer, strict=True))


def by_hand(network: nn.Module, point: dict[str, Tensor], x: Tensor) -> Tensor:
    """The forward pass of each network here, written out."""
    x = x.flatten(1)
    if isinstance(network, TwoNames):
        hidden = torch.tanh(F.linear(x, point["first.weight"], point["first.bias"]))
        return F.linear(hidden, point["last.weight"], point["last.bias"])
    if isinstance(network, Tied):
        for bias in ("body.bias", "body.bias", "again.bias"):
            x = torch.tanh(F.linear(x, point["body.weight"], point[bias]))
        return F.linear(x, point["head.weight"], point["head.bias"])
    if isinstance(network, Unused):
        return F.linear(x, point["used.weight"], point["used.bias"])
    if isinstance(network, Remembering):
        shown = F.linear(x, point["layer.weight"], point["layer.bias"])
        return shown * (1 + 0.1 * shown.mean(0).detach())
    clone = copy.deepcopy(network)  # torch's power iteration, from where the network stands
    weight = point["body.parametrizations.weight.original"]
    clone.body.parametrizations.weight[0]._power_method(weight.detach(), 1)
    u, v = (getattr(clone.body.parametrizations.weight[0], name) for name in ("_u", "_v"))
    hidden = torch.tanh(F.linear(x, weight / torch.vdot(u, weight @ v), point["body.bias"]))
    scale, direction = (point[f"head.parametrizations.weight.original{number}"] for number in (0, 1))
    return F.linear(hidden, scale * direction / direction.norm(dim=1, keepdim=True), point["head.bias"])


@pytest.mark.filterwarnings("ignore::arelu_meta.learners.engines.func_engine.OneByOne")
@pytest.mark.parametrize("method", ["maml", "fomaml"])
@pytest.mark.parametrize(("kind", "engine"), SUPPORTED)
def test_the_meta_gradient_is_right_and_the_network_left_alone(kind, engine, method):
    network = made(kind)
    expected = reference(network, method)
    learner = learners.build(method, network, engine=engine, inner_lr=RATE, inner_steps=STEPS)
    for _ in range(2):  # the second step would meet what the first left behind
        with left_alone(network):
            learner.meta_step(episodes(), progress=0.0)
            found = gradients(network)
            for parameter in network.parameters():
                parameter.grad = None
        assert distance(found, expected) < 1e-12


@pytest.mark.filterwarnings("ignore::arelu_meta.learners.engines.func_engine.OneByOne")
@pytest.mark.parametrize(("kind", "engine"), SUPPORTED)
def test_adapting_and_testing_leave_the_network_alone(kind, engine):
    network, batch = made(kind), episodes()
    learner = learners.build("maml", network, engine=engine, inner_lr=RATE, inner_steps=STEPS)
    with left_alone(network):
        adapted = learner.adapt(batch.support_x[0], batch.support_y[0])
        logits = adapted.logits(batch.query_x[0])
        table = learner.accuracy_by_step(batch)
    assert torch.allclose(logits, learner.query_logits(batch)[0])
    assert table.shape == (2, STEPS + 1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_failure_in_any_pass_leaves_the_network_alone(engine, call):
    network, calls = made(TwoNames), []

    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(1)
            if len(calls) == call:
                raise OSError("the disk is full")
            return x

    network.features.append(Failing())
    learner = learners.build("maml", network, engine=engine, inner_lr=RATE, inner_steps=STEPS)
    if engine == "func":
        learner.engine = learners.engines.func_engine.FuncEngine(vectorise=True)
    with left_alone(network), pytest.raises(OSError, match="the disk is full"):
        learner.meta_step(episodes(), progress=0.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_training_is_undone_by_loading_what_was_saved(engine):
    """An ordinary checkpoint loads before and after: layers and keys are those of the user's network."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, WAYS)
    ).double()
    saved, batch = copy.deepcopy(network.state_dict()), episodes()
    expected = network.eval()(batch.query_x[0])
    learner = learners.build("maml", network.train(), engine=engine, inner_lr=RATE, inner_steps=STEPS)
    optimizer = torch.optim.Adam(learner.parameter_groups(0.01))
    for _ in range(3):
        optimizer.zero_grad()
        learner.meta_step(batch, progress=0.0)
        optimizer.step()
    assert not torch.equal(network.eval()(batch.query_x[0]), expected)
    network.load_state_dict(saved)
    assert torch.equal(network.eval()(batch.query_x[0]), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_gradients_are_kept_where_none_are_asked_for(engine):
    network, batch = made(TwoNames), episodes()
    learner = learners.build("maml", network, engine=engine, inner_lr=RATE, inner_steps=STEPS)
    with torch.no_grad():
        assert not learner.query_logits(batch).requires_grad
    assert all(parameter.grad is None for parameter in network.parameters())


def test_buffers_of_a_network_reach_its_forward_pass():
    network = nn.BatchNorm1d(2, affine=False).double()
    network.running_mean += 5
    frozen = FunctionalNetwork(nn.Sequential(network))
    assert torch.allclose(frozen({}, torch.tensor([[1.0, 2], [3, 6]]).double()).mean(0), torch.zeros(2).double())
    assert network.running_mean.tolist() == [5, 5]
