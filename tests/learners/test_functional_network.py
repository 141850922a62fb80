"""The network is a function of its parameters and stays as it was, whatever its forward pass does or raises.

learn2learn's own tests of its MAML are here as facts: shared modules, unused parameters, first order, no gradients.
"""

import copy
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

from arelu_meta import learners
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.engines.func_engine import FuncEngine
from arelu_meta.learners.functional_network import FunctionalNetwork
from tests.learners.small_problems import WAYS, central_differences, distance, episodes, gradients

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
SUPPORTED = [(kind, engine) for kind in NETWORKS for engine in ENGINES]


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


class Reading(nn.Module):
    """Reads what it has written on itself: an attribute, a list, a tensor, and the mode of a child."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(16, WAYS), nn.BatchNorm1d(WAYS)
        self.mean: Tensor | None = None
        self.seen, self.total = [1.0], torch.zeros(WAYS, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x.flatten(1))
        if self.mean is None:
            self.mean = hidden.detach().mean(0)
        self.seen.append(2.0)
        self.total += 1
        self.norm.eval()
        self.layer.note = hidden
        return hidden * (1 + self.mean) * sum(self.seen) * self.total


@pytest.mark.filterwarnings("ignore::arelu_meta.learners.engines.func_engine.OneByOne")
@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_pass_writes_is_not_read_by_the_next(engine):
    """sum(seen) = 1 + 2 and total = 1 in every pass, so logits = 3 h (1 + mean of h)."""
    network, batch = made(Reading), episodes()
    learner = learners.build("maml", network, engine=engine, inner_lr=0.01, inner_steps=STEPS)
    with left_alone(network):
        found = learner.query_logits(batch)
    assert network.seen == [1.0]
    assert network.total.tolist() == [0.0] * WAYS
    assert network.norm.training
    for number, episode in enumerate(batch):
        point = [parameter.detach().clone().requires_grad_() for parameter in network.layer.parameters()]
        for _ in range(STEPS):
            hidden = F.linear(episode.support_x.flatten(1), *point)
            loss = F.cross_entropy(3 * hidden * (1 + hidden.detach().mean(0)), episode.support_y)
            steps = torch.autograd.grad(loss, point)
            point = [(p - 0.01 * g).detach().requires_grad_() for p, g in zip(point, steps, strict=True)]
        hidden = F.linear(episode.query_x.flatten(1), *point)
        assert torch.allclose(found[number], 3 * hidden * (1 + hidden.mean(0)))


def hooked(kind: str) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, WAYS)).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch prefers parametrisations
        if kind == "weight norm":
            nn.utils.weight_norm(network[1])
        elif kind == "spectral norm":
            nn.utils.spectral_norm(network[1])
        elif kind == "pruning":
            prune.random_unstructured(network[1], "weight", 0.5)
        elif kind == "doubled":
            network[1].register_forward_hook(lambda _module, _inputs, output: 2 * output)
        elif kind == "backward":
            network[1].register_full_backward_hook(lambda *_: None)
    return network


@pytest.mark.filterwarnings("ignore::arelu_meta.learners.engines.func_engine.OneByOne", "ignore:Full backward hook")
@pytest.mark.parametrize("kind", ["weight norm", "spectral norm", "pruning", "doubled", "backward"])
@pytest.mark.parametrize("engine", ["func", "learn2learn"])
def test_hooks_are_called_and_leave_no_trace(kind, engine):
    """A network with hooks is not known, so that it is checked, watched, and computed as plain autograd does."""
    network, batch = hooked(kind), episodes()
    learner = learners.build("maml", network, engine=engine, inner_lr=RATE, inner_steps=1)
    learner.meta_step(batch, progress=0.0)
    found = gradients(network)
    copy.deepcopy(network[3])
    assert not any(torch._C._functorch.is_batchedtensor(v) for v in vars(network[1]).values() if torch.is_tensor(v))
    slopes = {}
    for name, parameter in network.named_parameters():
        slopes[name] = central_differences(lambda: learner.query_loss(batch, 0.0)[0].mean().item(), parameter, most=3)
    for name, expected in slopes.items():
        if kind != "spectral norm":  # whose power iteration is constant to the gradient, not to differences
            assert torch.allclose(found[name].view(-1)[:3], expected[:3], rtol=1e-5, atol=1e-8), name


@pytest.mark.parametrize("kind", ["weight norm", "doubled"])
def test_higher_refuses_hooks_by_name(kind):
    learner = learners.build("maml", hooked(kind), engine="higher", inner_lr=RATE, inner_steps=1)
    with pytest.raises(InputError, match="engine 'higher' calls no hooks, and 1 has some; use `engine='func'`"):
        learner.meta_step(episodes(), progress=0.0)


@pytest.mark.parametrize("vectorise", [True, False])
def test_hooks_on_parameters_see_the_outer_gradient_alone(vectorise):
    plain, halved = made(TwoNames), made(TwoNames)
    halved.first.weight.register_hook(lambda gradient: gradient / 2)
    found = []
    for network in (plain, halved):
        learner = learners.build("maml", network, inner_lr=RATE, inner_steps=STEPS)
        learner.engine = FuncEngine(vectorise=vectorise)
        learner.meta_step(episodes(), progress=0.0)
        found.append(gradients(network))
    assert torch.allclose(found[1]["first.weight"], found[0]["first.weight"] / 2)
    assert torch.allclose(found[1]["last.weight"], found[0]["last.weight"])


def test_threads_that_share_a_network_get_their_own_answers():
    """As a server's do; without a lock one thread's parameters answer for another's, or stay in the network."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(16, WAYS)
    ).double()
    learner = learners.build("maml", network.eval(), inner_lr=RATE, inner_steps=STEPS)
    batches = [episodes(1, seed=seed) for seed in range(2)]

    def answer(batch: Episode) -> Tensor:
        return learner.adapt(batch.support_x[0], batch.support_y[0]).logits(batch.query_x[0])

    expected = [answer(batch) for batch in batches]
    with left_alone(network), ThreadPoolExecutor(2) as pool:
        found = list(pool.map(answer, batches * 20))
    assert all(torch.equal(one, expected[number % 2]) for number, one in enumerate(found))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_that_gives_no_tensor_is_refused_in_one_line(engine):
    class Pair(Unused):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(x), x

    learner = learners.build("maml", made(Pair), engine=engine, inner_lr=RATE, inner_steps=STEPS)
    with pytest.raises(InputError, match="Pair gives a tuple, and learners take logits; wrap it"):
        learner.meta_step(episodes(), progress=0.0)


def test_wrappers_are_refused():
    with pytest.raises(InputError, match="DataParallel cannot be called with other parameters than its own; give the"):
        learners.build("maml", nn.DataParallel(made(Unused)), inner_lr=RATE, inner_steps=STEPS)
