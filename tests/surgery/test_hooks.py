"""Hooks on what is swapped: they move to the new activation and back, or the swap is refused by name."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.surgery import restore, swap


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(2, 2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.fc(self.act(x)))


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


class RunsInnerTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.inner(x) - 1)


def test_hooks_move_to_the_new_activation_and_back():
    """B10: they were lost without a word."""
    seen: list[tuple[str, str]] = []

    def note(kind: str) -> Any:
        return lambda module, *_: seen.append((kind, type(module).__name__))

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    handle = model[1].register_forward_hook(note("after"))
    model[1].register_forward_pre_hook(note("before"))
    model[1].register_full_backward_hook(note("backward"))
    report = swap(model, "arelu")
    model(torch.ones(1, 2)).sum().backward()
    assert seen == [("before", "AReLU"), ("after", "AReLU"), ("backward", "AReLU")]
    seen.clear()
    restore(model, report)
    model(torch.ones(1, 2)).sum().backward()
    assert seen == [("before", "ReLU"), ("after", "ReLU"), ("backward", "ReLU")]
    seen.clear()
    handle.remove()
    model(torch.ones(1, 2))
    assert seen == [("before", "ReLU")]


def test_a_hook_that_changes_the_output_still_does():
    model = nn.Sequential(nn.ReLU())
    model[0].register_forward_hook(lambda _module, _inputs, output: output + 1)
    swap(model, "prelu", init=0.5)
    assert model(torch.tensor([-2.0])).item() == 0.0


def test_no_gain_is_folded_past_a_hook():
    """The hook sees, and may change, what the gain has scaled."""
    for hooked in (1, 2, 3):
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout(), nn.Linear(2, 2))
        plain = copy.deepcopy(model)
        model[hooked].register_forward_hook(lambda _module, _inputs, output: output.clamp(max=1))
        assert swap(model, "arelu", preserve=True).sites[0].folded_into is None
        assert swap(plain, "arelu", preserve=True).sites[0].folded_into == "3"


@pytest.mark.parametrize("where", [None, "act_2"])
def test_a_hook_on_a_module_with_several_calls_is_refused(where: str | None):
    model = Twice()
    model.act.register_forward_hook(lambda *_: None)
    with pytest.raises(InputError) as caught:
        swap(model, "arelu", where=where)
    assert str(caught.value) == (
        "`act` has hooks and 2 calls, which become modules of their own; "
        "remove the hooks, swap, and register them on the new modules"
    )
    assert type(model) is Twice


def test_hooks_on_saving_are_refused():
    model = nn.Sequential(nn.ReLU())
    model[0].register_state_dict_post_hook(lambda *_: None)
    with pytest.raises(InputError, match="`0` has hooks on its state dict; remove them, and swap then"):
        swap(model, "arelu")


def test_a_hook_on_a_block_that_is_written_into_another_is_refused():
    """Two calls of a block become four sites in the forward pass around it; the block itself is called no more."""
    model = nn.Sequential(RunsInnerTwice())
    model[0].inner.register_forward_hook(lambda *_: None)
    with pytest.raises(InputError, match=r"`0\.inner` has hooks and runs several times"):
        swap(model, "arelu")
    model = nn.Sequential(RunsInnerTwice())
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append("block"))
    swap(model, "arelu")
    model(torch.ones(2))
    assert seen == ["block"]
