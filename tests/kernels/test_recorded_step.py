import math
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from arelu_meta.data.episodes import Episode
from arelu_meta.kernels.recorded_step import Recording
from tests.learners.small_problems import build, conv4, episodes, mnist_conv

WEIGHT = torch.tensor([1.0, -2.0, 3.0])


def recorded(
    function: Callable[..., Tensor | tuple[Tensor | None, ...]], *inputs: Tensor, lasting: tuple[Tensor, ...] = ()
) -> tuple[GraphModule | None, str]:
    with Recording(inputs, lasting) as recording:
        results = function(*inputs)
        results = results if isinstance(results, tuple) else (results,)
    return recording.finish(results), recording.obstacle


def test_replayed_on_other_inputs():
    graph, obstacle = recorded(lambda x, y: (x * y + 1, None), torch.zeros(2), torch.zeros(2))
    assert obstacle == ""
    assert graph is not None
    product, nothing = graph(torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]))
    assert product.tolist() == [11.0, 22.0]
    assert nothing is None


def test_views_changed_in_place_and_results_of_several_parts():
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        copy = x.clone()
        copy[0].mul_(10)
        largest, places = copy.max(dim=1)
        return largest, places, torch.cat(copy.split(1, dim=1)[:1])

    graph, obstacle = recorded(function, torch.tensor([[1.0, 2.0], [5.0, 4.0]]))
    assert obstacle == ""
    assert graph is not None
    largest, places, first = graph(torch.tensor([[3.0, 1.0], [0.0, 7.0]]))
    assert (largest.tolist(), places.tolist(), first.tolist()) == ([30.0, 7.0], [0, 1], [[30.0], [0.0]])


def targets(graph: GraphModule) -> list[object]:
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def test_chains_of_views_are_one_operation_and_taken_once():
    """Rows 1 and 2 of (x + 1).view(2, 3) transposed, less themselves; and its last number, e^(x[5] + 1)."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        moved = (x + 1).view(2, 3).t()
        return moved[1:].neg() + moved.detach()[1:], moved[2].unsqueeze(0)[:, 1].exp()

    graph, _ = recorded(function, torch.zeros(6))
    assert graph is not None
    assert targets(graph).count(torch.as_strided) == 2
    assert len(targets(graph)) == 6  # two views, and the sum before them, neg, add, exp
    zeros, last = graph(torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]))
    assert zeros.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    torch.testing.assert_close(last, torch.tensor([2.0]).exp())


def test_views_of_inputs_begin_where_the_input_does():
    numbers = torch.arange(8.0)
    graph, obstacle = recorded(lambda x: x.view(2, 2).t()[1] * 1, numbers[:4])
    assert obstacle == ""
    assert graph(numbers[4:])[0].tolist() == [5.0, 7.0]


def test_views_of_memory_that_was_used_before():
    """Each sum is freed before the next is computed, which gets its memory: its views are not those of the last."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        sums = [(x + number).view(2, 2)[1].clone() for number in range(4)]
        return (*sums, torch.tensor([5.0, 6.0])[1:] * 1)

    graph, obstacle = recorded(function, torch.zeros(4))
    assert obstacle == ""
    *sums, constant = graph(torch.tensor([0.0, 0.0, 10.0, 20.0]))
    assert [one.tolist() for one in sums] == [[10.0 + number, 20.0 + number] for number in range(4)]
    assert constant.tolist() == [6.0]


def test_tensors_without_memory():
    """Zeros that torch does not write out, as gradients can be, have an address no more than empty tensors have."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        zeros, empty = torch._efficientzerotensor(2, 2), x[:0] * 1
        return x + zeros.t()[0], torch.cat([empty.view(0), empty.clone(), x])

    graph, obstacle = recorded(function, torch.zeros(2))
    assert obstacle == ""
    assert [one.tolist() for one in graph(torch.tensor([3.0, 4.0]))] == [[3.0, 4.0], [3.0, 4.0]]


def test_numbers_read_as_another_type_are_viewed_as_recorded():
    graph, obstacle = recorded(lambda x: (x + 0).view(torch.int32)[1:] * 1, torch.zeros(2))
    assert obstacle == ""
    assert graph(torch.tensor([0.0, 1.0]))[0].tolist() == [0x3F800000]  # 1.0 in IEEE 754


def test_what_nothing_depends_on_is_left_out_but_not_changes_in_place():
    def function(x: Tensor) -> Tensor:
        x.exp().sum()
        out = torch.zeros(2, 2)
        out[1].add_(x)
        return out

    graph, _ = recorded(function, torch.zeros(2))
    assert graph is not None
    assert torch.ops.aten.exp.default not in targets(graph)
    assert torch.ops.aten.add_.Tensor in targets(graph)
    assert graph(torch.tensor([3.0, 4.0]))[0].tolist() == [[0.0, 0.0], [3.0, 4.0]]


def test_gradients_of_gradients_over_episodes():
    """f(w) = sum w^3: f' = 3 w^2; of sum (f')^2 = 9 w^4 the gradient is 36 w^3, and 36 w^3 x^2 with inputs x w^3."""

    def function(x: Tensor) -> Tensor:
        def of_episode(one: Tensor) -> Tensor:
            return torch.func.grad(lambda w: (one * w**3).sum())(weight).square().sum()

        (gradient,) = torch.autograd.grad(torch.vmap(of_episode)(x).sum(), weight)
        return gradient

    weight = WEIGHT.clone().requires_grad_()
    graph, obstacle = recorded(function, torch.ones(4, 3), lasting=(weight,))
    assert obstacle == ""
    assert graph is not None
    with torch.no_grad():
        weight.copy_(torch.tensor([1.0, 2.0, -1.0]))  # what lasts is used as it is when the graph is replayed
    with torch.no_grad():
        (gradient,) = graph(2 * torch.ones(4, 3))
    assert gradient.tolist() == [4 * 36 * 4, 4 * 36 * 8 * 4, -4 * 36 * 4]
    assert not gradient.requires_grad


def test_constants_are_each_replays_own():
    graph, obstacle = recorded(lambda x: torch.tensor([1.0, 2.0]).add_(x), torch.ones(2))
    assert obstacle == ""
    assert graph is not None
    assert [graph(torch.ones(2))[0].tolist() for _ in range(2)] == [[2.0, 3.0], [2.0, 3.0]]


def test_a_part_of_memory_is_that_of_the_input():
    numbers = torch.arange(6.0)
    graph, obstacle = recorded(lambda x: x.as_strided((2,), (1,)) * 1, numbers[:3])
    assert obstacle == ""
    assert graph(numbers[3:])[0].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("function", "obstacle"),
    [
        (lambda x: x * x.sum().item(), "it reads a number (aten."),
        (lambda x: x if x.sum() > 0 else -x, "it reads a number (aten."),
        (lambda x: x[x > 0], "the shape of a result depends on numbers (aten."),
        (lambda x: x + torch.rand(2), "it draws random numbers (aten."),
        (lambda x: torch.dropout(x, 0.5, True), "it draws random numbers (aten."),
        (lambda x: x.as_strided((1,), (1,), 1), "it reads from an offset in memory (aten."),
        (lambda x: x * WEIGHT[:2], "it uses a tensor (3,) from outside"),
    ],
)
def test_what_cannot_be_recorded_is_named(function: Callable[[Tensor], Tensor], obstacle: str):
    graph, found = recorded(function, torch.ones(2))
    assert graph is None
    assert found.startswith(obstacle)


def test_one_tensor_for_two_inputs():
    x = torch.ones(2)
    assert recorded(lambda x, y: x + y, x, x)[1] == "one tensor is given twice"


def test_make_fx_freezes_tensors_from_outside():
    """One of the two reasons for a recorder of our own; the other is its time, below."""
    other = torch.ones(2)
    graph = make_fx(lambda x: x * other, tracing_mode="real")(torch.ones(2))
    assert graph(torch.ones(2)).tolist() == [1.0, 1.0]  # without an error: nothing tells that `other` may change
    assert recorded(lambda x: x * other, torch.ones(2))[1] == "it uses a tensor (2,) from outside"


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["arelu", "relu"])
@pytest.mark.parametrize("network", [mnist_conv, conv4])
def test_make_fx_gives_the_same_bits_but_takes_longer_to_record(network: Callable[..., nn.Module], activation: str):
    """Where this fails because `make_fx` has become fast, it can take the place of `Recording`."""
    net = network(activation, torch.float32)
    learner = build("maml", net, inner_lr=0.005)
    batches = [episodes(8, size=28 if network is mnist_conv else 16, dtype=torch.float32, seed=n) for n in range(3)]
    parameters = list(net.parameters())

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        loss, logits = learner.query_loss(Episode(*tensors), 0.0)
        return loss.detach(), logits.detach(), *torch.autograd.grad(loss.sum(), parameters)

    def record() -> GraphModule:
        graph, obstacle = recorded(step, *batches[0].tensors(), lasting=(*parameters, *net.buffers()))
        assert obstacle == ""
        return graph

    recorders = {"ours": record, "make_fx": lambda: make_fx(step, tracing_mode="real")(*batches[0].tensors())}
    seconds = dict.fromkeys(recorders, math.inf)
    graphs = {}
    for _ in range(2):
        for name, recorder in recorders.items():
            start = time.process_time()
            graphs[name] = recorder()
            seconds[name] = min(seconds[name], time.process_time() - start)
    for batch in batches:
        wanted = step(*batch.tensors())
        assert wanted[0].isfinite().all()
        for graph in graphs.values():
            with torch.no_grad():
                results = graph(*batch.tensors())
            assert all(torch.equal(*pair) for pair in zip(results, wanted, strict=True))
        with torch.no_grad():
            for parameter, gradient in zip(parameters, wanted[2:], strict=True):
                parameter -= 0.001 * gradient
    assert seconds["make_fx"] > 1.5 * seconds["ours"], "make_fx has become fast"
