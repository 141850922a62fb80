"""Traces leave the process as it was, and refuse questions about types."""

import builtins
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.surgery import swap
from arelu_meta.surgery.tracing import TENSOR, UntraceableError, trace


class Slow(nn.Module):
    """Its forward takes a while, so that the traces of two threads meet."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.act = seconds, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.seconds)
        return torch.relu(self.act(x))


def test_two_threads_that_interleave_leave_nothing_patched():
    """The second starts while the first is in its forward, and ends after it."""
    before = (builtins.isinstance, nn.Module.__call__, nn.Module.__getattr__)
    start = threading.Barrier(2)

    def traced(order: int) -> int:
        start.wait()
        time.sleep(0.02 * order)
        return len(swap(nn.Sequential(Slow(0.05)), "arelu").sites)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(traced, range(2))) == [2, 2]
    assert (builtins.isinstance, nn.Module.__call__, nn.Module.__getattr__) == before
    assert nn.ReLU()(torch.tensor([-1.0])).item() == 0


def test_networks_run_in_other_threads_while_one_is_traced():
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.PReLU()).eval()
    x = torch.ones(3, 2)
    wanted = network(x)
    with ThreadPoolExecutor(1) as pool:
        tracing = pool.submit(trace, Slow(0.05), {"x": TENSOR})
        while not tracing.done():
            assert torch.equal(network(x), wanted)
        assert tracing.result().obstacle is None


def test_builtins_are_untouched_while_a_module_is_traced():
    seen = []

    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(builtins.isinstance)
            return torch.relu(x)

    original = isinstance
    swap(nn.Sequential(Looks()), "arelu")
    assert set(seen) == {original}


def of_tensor(x):
    return isinstance(x, Tensor)


def of_parameter(x):
    return isinstance(x, nn.Parameter)


def of_abstract_class(x):
    return isinstance(x.shape, Sequence)


def of_several(x):
    return isinstance(x.size(0), (int, Tensor))


def of_items(x):
    return any(isinstance(item, Tensor) for item in [x])


def over_lines(x):
    # fmt: off
    return not isinstance(
        x + 1,
        Tensor,
    )
    # fmt: on


def by_class(x):
    return x.__class__ is Tensor


@pytest.mark.parametrize(
    "asks", [of_tensor, of_parameter, of_abstract_class, of_several, of_items, over_lines, by_class]
)
def test_questions_about_the_type_of_a_value_are_refused(asks):
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x) if asks(x) else x

    with pytest.raises(UntraceableError, match="branches on the type of a value"):
        trace(Branches(), {"x": TENSOR})


def test_other_questions_and_calls_written_in_c_are_allowed():
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 2))
            self.size = 2

        def forward(self, x: Tensor) -> Tensor:
            assert isinstance(self.size, int)
            assert self.weight.shape == (3, 2)
            assert self.weight.dim() == 2
            x = torch.reshape(x, (x.size(0), -1))
            return F.linear(torch.flatten(x, x.dim() - 1), self.weight)

    graphs = trace(Asks(), {"x": TENSOR}).graphs
    assert any(node.target is F.linear for node in graphs[True].nodes)


def test_what_forward_keeps_in_a_dict_is_taken_out_again():
    """A cache would keep proxies; LeViT's attention has one."""

    class Caches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: dict[str, Tensor] = {}

        def forward(self, x: Tensor) -> Tensor:
            self.cache["last"] = torch.relu(x)
            return self.cache["last"]

    model = nn.Sequential(Caches())
    swap(model, "arelu")
    assert model[0].cache == {}


class Sign(torch.autograd.Function):
    """Sign with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return gradient


sign = Sign.apply


class Quantised(nn.Module):
    def __init__(self, by_class: bool) -> None:
        super().__init__()
        self.by_class, self.fc = by_class, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc(x)) - 0.2
        return Sign.apply(x) if self.by_class else sign(x)


@pytest.mark.parametrize("by_class", [True, False])
def test_a_backward_of_its_own_is_not_lost(by_class: bool):
    """Its forward was traced as plain code: after a swap of F.relu the gradient of the weight was zero."""
    model = Quantised(by_class)
    with pytest.raises(InputError, match="calls the autograd function Sign, which has a backward of its own"):
        swap(model, "relu", from_="relu")
    model(torch.ones(2, 4)).sum().backward()
    assert type(model) is Quantised
    assert len(swap(nn.Sequential(Quantised(by_class), Rewritten()), "tanh", parts="auto").sites) == 1


class Rewritten(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) + 1


class SwitchesGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.fc(x)
        return self.act(x)


def test_contexts_that_switch_gradients_are_kept():
    """A rewritten forward does not have them; where a module is replaced the source stays."""

    class ByFunction(SwitchesGradients):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                return F.relu(self.fc(x))

    with pytest.raises(InputError, match="switches gradients or autocast as it runs"):
        swap(ByFunction(), "tanh")
    model = SwitchesGradients()
    assert len(swap(model, "arelu").sites) == 1
    model(torch.ones(2, 4)).sum().backward()
    assert model.fc.weight.grad is None


def test_values_that_are_looked_up_are_not_guessed():
    """A proxy is in no dict, so the answer was that of a value that is not there."""

    class LooksUp(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x) * {4: 2.0}.get(x.shape[1], 1.0)

    with pytest.raises(InputError, match="looks a value up in a dict or set"):
        swap(LooksUp(), "tanh")
