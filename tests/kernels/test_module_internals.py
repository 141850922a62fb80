"""Hooks by torch's own functions, moved by ours: a renamed attribute of nn.Module fails here."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from arelu_meta.kernels import module_internals as internals


def ignore(*_args, **_kwargs):
    return None


CALL = {
    "forward": lambda module: module.register_forward_hook(ignore),
    "forward with keywords": lambda module: module.register_forward_hook(ignore, with_kwargs=True),
    "forward, always called": lambda module: module.register_forward_hook(ignore, always_call=True),
    "before forward": lambda module: module.register_forward_pre_hook(ignore),
    "before forward, with keywords": lambda module: module.register_forward_pre_hook(ignore, with_kwargs=True),
    "backward": lambda module: module.register_full_backward_hook(ignore),
    "before backward": lambda module: module.register_full_backward_pre_hook(ignore),
}
STATE = {
    "state dict": lambda module: module.register_state_dict_post_hook(ignore),
    "before state dict": lambda module: module.register_state_dict_pre_hook(ignore),
    "before loading": lambda module: module.register_load_state_dict_pre_hook(ignore),
    "after loading": lambda module: module.register_load_state_dict_post_hook(ignore),
}


def test_a_module_keeps_its_hooks_where_we_look():
    """Every dictionary of hooks of a new module is in one of the two lists."""
    kept = {name for name, value in vars(nn.Module()).items() if "hook" in name and isinstance(value, OrderedDict)}
    assert kept == {*internals.CALL_HOOKS, *internals.STATE_HOOKS}
    assert vars(nn.Module())["_is_full_backward_hook"] is None
    assert list(getattr(nn.Sequential(nn.ReLU()), internals.CHILDREN)) == ["0"]


@pytest.mark.parametrize("kind", CALL)
def test_call_hooks_are_known_and_move_with_their_handles(kind: str):
    old, new = nn.ReLU(), nn.Tanh()
    assert not internals.has_call_hooks(old)
    handle = CALL[kind](old)
    assert internals.has_call_hooks(old)
    assert not internals.has_state_hooks(old)
    internals.move_call_hooks(old, new)
    assert (internals.has_call_hooks(old), internals.has_call_hooks(new)) == (False, True)
    handle.remove()
    assert not internals.has_call_hooks(new)


@pytest.mark.parametrize("kind", STATE)
def test_state_hooks_are_known(kind: str):
    module = nn.ReLU()
    assert not internals.has_state_hooks(module)
    STATE[kind](module)
    assert internals.has_state_hooks(module)
    assert not internals.has_call_hooks(module)


def test_moved_hooks_are_called_forwards_and_backwards():
    seen = []
    old, new = nn.ReLU(), nn.Tanh()
    old.register_forward_pre_hook(lambda module, _: seen.append(("before", module)))
    old.register_forward_hook(lambda module, *_: seen.append(("after", module)))
    old.register_full_backward_hook(lambda module, *_: seen.append(("backward", module)))
    new.register_forward_hook(lambda module, *_: seen.append(("its own", module)))
    internals.move_call_hooks(old, new)
    new(torch.ones(1, requires_grad=True)).backward()
    assert seen == [("before", new), ("after", new), ("its own", new), ("backward", new)]
    old(torch.ones(1))
    assert len(seen) == 4


def test_a_layer_computes_with_another_weight_meanwhile():
    layer = nn.Linear(2, 1, bias=False)
    own = layer.weight
    with internals.with_weight(layer, torch.tensor([[3.0, 4.0]])):
        assert layer(torch.tensor([[1.0, 10.0]])).item() == 43.0
    assert dict(layer.named_parameters()) == {"weight": own}
    with pytest.raises(RuntimeError), internals.with_weight(layer, own.detach()):
        layer(torch.zeros(1, 3))
    assert layer.weight is own


def test_compiled_networks_are_known():
    assert internals.is_compiled(torch.compile(nn.Linear(1, 1), backend="eager"))
    assert not internals.is_compiled(nn.Linear(1, 1))


def test_a_copy_without_hooks():
    module = nn.Sequential(nn.Linear(2, 2))
    for register in CALL.values():
        register(module)
    copied = internals.copy_without_hooks(module)
    assert internals.has_call_hooks(module)
    assert not internals.has_call_hooks(copied)
    assert copied[0] is not module[0]
    assert torch.equal(copied[0].weight, module[0].weight)
