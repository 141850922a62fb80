"""What every learner must do, whatever its method."""

import copy

import pytest
import torch
from torch import Tensor, nn

from arelu_meta import learners
from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError
from arelu_meta.learners.learner import Learner
from arelu_meta.metrics import accuracy
from tests.learners.small_problems import build, conv4, distance, episodes, gradients, mnist_conv, own_net

METHODS = learners.names()
TRAINED = [entry.name for entry in learners.entries() if entry.needs_training]
BY_GRADIENT = [entry.name for entry in learners.entries() if entry.by_gradient]
WITHOUT_INNER_LOOP = [entry.name for entry in learners.entries() if not entry.by_gradient]
STEPS = 2  # of `build`


def learned(learner: Learner) -> list[nn.Parameter]:
    return [parameter for group in learner.parameter_groups(0.1) for parameter in group["params"]]


def test_all_fifteen_methods_are_registered():
    trained = ["maml", "fomaml", "anil", "boil", "meta_sgd", "mamlpp", "reptile", "joint", "protonet", "pmf"]
    assert [*trained, "simpleshot", "linear", "knn", "features", "centroid"] == METHODS


@pytest.mark.parametrize("method", TRAINED)
@pytest.mark.parametrize("activation", ["identity", "arelu"])
@pytest.mark.parametrize(("network", "size"), [(own_net, 4), (mnist_conv, 28), (conv4, 16)])
def test_a_step_fills_finite_gradients_for_all_that_is_learned(method, activation, network, size):
    net = network(activation, torch.float32)
    learner = build(method, net, **({"inner_steps": 1} if method in BY_GRADIENT else {}))
    outcome = learner.meta_step(episodes(size=size, dtype=torch.float32), progress=0.0)
    assert outcome.loss.isfinite()
    assert outcome.loss.shape == ()
    assert outcome.accuracies.shape == (2,)
    assert not outcome.loss.requires_grad
    unused = {"last.weight", "last.bias", "head.weight", "head.bias"} if method in WITHOUT_INNER_LOOP else set()
    for name, parameter in net.named_parameters():
        if name not in unused:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
    known = {id(parameter) for parameter in net.parameters()}
    for parameter in learned(learner):
        if id(parameter) not in known:
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().max() > 0
    assert sum(parameter.grad.abs().sum() for parameter in net.parameters() if parameter.grad is not None) > 0


@pytest.mark.parametrize("method", TRAINED)
def test_the_outer_optimizer_gets_every_parameter_once(method):
    net = own_net("arelu")
    learner = build(method, net)
    groups = [id(parameter) for parameter in learned(learner)]
    assert len(groups) == len(set(groups))
    assert {id(parameter) for parameter in learner.state().parameters()} == set(groups)
    assert {id(parameter) for parameter in net.parameters()} <= set(groups)


@pytest.mark.parametrize("method", METHODS)
def test_accuracy_by_step(method):
    """(episodes, steps + 1): first the network as it is, last what `final_accuracy` gives."""
    batch, net = episodes(4), own_net()
    learner = build(method, net, **({"test_steps": 5} if method in BY_GRADIENT else {}))
    table = learner.accuracy_by_step(batch)
    assert not table.requires_grad
    assert torch.equal(table[:, -1], learner.final_accuracy(batch))
    assert torch.equal(table[:, -1], accuracy(learner.query_logits(batch), batch.query_y))
    if method in WITHOUT_INNER_LOOP:
        assert table.shape == (4, 11 if method == "pmf" else 1)  # prototypes, and after ten steps
        return
    assert table.shape == (4, 6)
    with torch.no_grad():
        plain = torch.stack([net(episode.query_x).argmax(1) == episode.query_y for episode in batch])
    assert torch.equal(table[:, 0], plain.float().mean(1))


@pytest.mark.parametrize("method", METHODS)
def test_adaptation_helps(method):
    """Classes differ in brightness by as much as the noise: after training on episodes, well above chance (1/3)."""
    learner = build(method, own_net(), **({"test_steps": 5} if method in BY_GRADIENT else {}))
    if method in TRAINED:
        optimizer = torch.optim.SGD(learner.parameter_groups(1.0 if method == "reptile" else 0.3))
        for seed in range(15):
            optimizer.zero_grad()
            learner.meta_step(episodes(8, seed=seed), progress=seed / 15)
            optimizer.step()
    assert learner.final_accuracy(episodes(30, seed=99)).mean() > (0.5 if method == "knn" else 0.6)


@pytest.mark.parametrize("method", METHODS)
def test_measuring_changes_nothing(method):
    net = own_net("arelu")
    learner = build(method, net)
    before = copy.deepcopy(learner.state().state_dict())
    learner.accuracy_by_step(episodes())
    learner.final_accuracy(episodes())
    assert all(torch.equal(value, before[name]) for name, value in learner.state().state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("method", BY_GRADIENT)
@pytest.mark.parametrize("chunk", [1, 3])
def test_chunked_equals_unchunked(method, chunk):
    found = []
    for size in (0, chunk):
        learner = build(method, own_net("arelu"), chunk=size)
        batch = episodes(4)
        outcome = learner.meta_step(batch, progress=0.3)
        found.append((gradients(learner.state()), outcome, learner.accuracy_by_step(batch)))
    (whole, outcome, table), (parts, outcome_of_parts, table_of_parts) = found
    assert distance(parts, whole) < 1e-12
    assert torch.allclose(outcome.loss, outcome_of_parts.loss, rtol=1e-12)
    assert torch.equal(outcome.accuracies, outcome_of_parts.accuracies)
    assert torch.equal(table, table_of_parts)


@pytest.mark.parametrize("method", TRAINED)
def test_shares_of_a_batch_add_up_to_its_gradient(method):
    """Three of four episodes with share 3/4 and one with share 1/4: what two processes send each other."""
    learner, batch = build(method, own_net("arelu")), episodes(4)
    learner.meta_step(batch, progress=0.3)
    whole = gradients(learner.state())
    learner.meta_step(batch[:3], progress=0.3, share=0.75)
    learner.meta_step(batch[3:], progress=0.3, share=0.25)
    assert distance(gradients(learner.state()), whole) < 1e-12
    learner.meta_step(batch, progress=0.3, share=0.5)
    halved = gradients(learner.state())
    assert distance({name: 2 * value for name, value in halved.items()}, whole) < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_episodes_do_not_see_each_other(method):
    learner, batch = build(method, own_net()), episodes(4)
    together = learner.query_logits(batch)
    assert torch.allclose(together[2:3], learner.query_logits(batch[2:3]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_state_holds_all_that_is_learned(method):
    """A learner that is trained, saved and loaded into a fresh one answers as before."""
    batch = episodes(4)
    learner = build(method, own_net("arelu"))
    if method in TRAINED:
        learner.meta_step(batch, progress=0.3)
        torch.optim.SGD(learner.parameter_groups(0.5)).step()
    torch.manual_seed(1)
    other = own_net("arelu")
    for parameter in other.parameters():
        nn.init.constant_(parameter, 0.123)
    fresh = build(method, other)
    if method in TRAINED:
        assert not torch.allclose(fresh.query_logits(batch), learner.query_logits(batch))
    fresh.state().load_state_dict(learner.state().state_dict())
    assert torch.equal(fresh.query_logits(batch), learner.query_logits(batch))


@pytest.mark.parametrize("method", [name for name in METHODS if name not in WITHOUT_INNER_LOOP])
def test_shapes_on_the_meta_device(method):
    """No number is looked at, so a network too large for memory can be planned."""
    with torch.device("meta"):
        net = own_net("arelu", torch.float32)
    batch = Episode(*(tensor.to("meta") for tensor in episodes(dtype=torch.float32).tensors()))
    learner = build(method, net)
    assert learner.meta_step(batch, progress=0.0).loss.is_meta
    assert all(parameter.grad.is_meta for parameter in learner.state().parameters())
    assert learner.accuracy_by_step(batch).shape == (2, STEPS + 1)


class Centre(nn.Module):
    """Gives each image its label by the mean of its pixels, with one parameter: nothing of ours in it."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.tensor([-1.0, 0.2, 1.0], dtype=torch.float64))

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1).mean(1, keepdim=True) * self.centres

    def forward(self, x: Tensor) -> Tensor:
        return -((x.flatten(1).mean(1, keepdim=True) - self.centres) ** 2)


@pytest.mark.parametrize("method", METHODS)
def test_any_module_will_do(method):
    net = Centre()
    if method == "boil":  # a network that is all head has no body to move
        with pytest.raises(InputError, match="nothing but a head"):
            build(method, net).prepare(episodes())
        return
    learner = build(method, net)
    if method in TRAINED:
        learner.meta_step(episodes(), progress=0.0)
        assert net.centres.grad.abs().max() > 0
    by_direction = method in ("simpleshot", "knn")  # features on one line have two
    assert learner.final_accuracy(episodes(20)).mean() > (0.5 if by_direction else 0.8)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ["func", "higher", "learn2learn"])
def test_a_pair_that_does_not_exist_is_refused(method, engine):
    supported = learners.entry(method).engines
    if engine in supported:
        learners.check_engine(method, engine)
        return
    with pytest.raises(InputError, match=f"method '{method}' does not run on engine '{engine}'; use `engine='func'`"):
        build(method, own_net(), engine=engine)


def test_unknown_names_suggest_the_near_one():
    with pytest.raises(InputError, match="unknown method 'malm'; did you mean 'maml'"):
        build("malm", own_net())
    with pytest.raises(InputError, match="unknown engine 'funk'; did you mean 'func'"):
        build("maml", own_net(), engine="funk")
