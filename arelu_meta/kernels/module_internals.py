"""What `nn.Module` keeps under private names: its hooks, its parameters, and the network inside a compiled one."""

import copy
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

CHILDREN = "_modules"
# Dictionaries of `nn.Module`, by what fills them. `_is_full_backward_hook` is a flag beside them.
CALL_HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks"),
)
STATE_HOOKS = (
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)


def has_call_hooks(module: nn.Module) -> bool:
    """Tell whether a forward or backward hook is registered on the module itself."""
    return any(getattr(module, hooks) for hooks in CALL_HOOKS)


def has_state_hooks(module: nn.Module) -> bool:
    """Tell whether a hook on saving or loading is registered on the module itself."""
    return any(getattr(module, hooks) for hooks in STATE_HOOKS)


def move_call_hooks(old: nn.Module, new: nn.Module) -> None:
    """Move forward and backward hooks; the handles that registering them gave still remove them.

    A handle knows the dictionary that its hook is in, so the dictionaries themselves move.
    """
    if not has_call_hooks(old):
        return
    for name in CALL_HOOKS:
        hooks: OrderedDict[int, Any] = getattr(old, name)
        hooks.update(getattr(new, name))
        setattr(new, name, hooks)
        setattr(old, name, OrderedDict())
    new._is_full_backward_hook, old._is_full_backward_hook = old._is_full_backward_hook, None


def copy_without_hooks(module: nn.Module) -> nn.Module:
    """Copy a module deeply, but for its hooks: one that is a method would bring its owner along, open files and all."""
    bare = copy.copy(module)
    for name in CALL_HOOKS:
        vars(bare)[name] = OrderedDict()
    return copy.deepcopy(bare)


@contextmanager
def with_weight(layer: nn.Module, weight: Tensor) -> Iterator[None]:
    """Let a layer compute with another weight meanwhile, which need not be a parameter."""
    own = layer._parameters["weight"]
    layer._parameters["weight"] = weight  # type: ignore[assignment]
    try:
        yield
    finally:
        layer._parameters["weight"] = own


def is_compiled(module: nn.Module) -> bool:
    """Tell what `torch.compile` gives from a plain network."""
    return hasattr(module, "_orig_mod")
