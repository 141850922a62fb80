"""Whether code that no trace follows can apply an activation, read from the code itself.

`cannot_apply` proves an absence: no function or method that a module's classes, or the Python functions they reach,
could call bears an activation's name, and no module below it is one. Attention written with branches on shapes is the
common case.
"""

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from arelu_meta.surgery.activation_types import CALLS, module_type


def cannot_apply(module: nn.Module, chosen: frozenset[str]) -> bool:
    """Tell whether neither the module nor any below it can apply one of these types."""
    names = _names_in_code(chosen)
    for child in module.modules():
        if module_type(child) in chosen or conceals(child):
            return False
        if is_torch(type(child)):
            continue
        starts = [value for cls in type(child).__mro__ if not _from_torch(cls) for value in vars(cls).values()]
        starts += [value for value in vars(child).values() if not isinstance(value, nn.Module)]
        seen: set[int] = set()
        if any(_reaches(value, names, seen) for value in starts):
            return False
    return True


def may_apply(function: Callable[..., Any], chosen: frozenset[str]) -> bool:
    """Tell whether a function that a trace keeps whole (`torch.fx.wrap`) could apply one of these types."""
    return _reaches(function, _names_in_code(chosen), set())


def conceals(module: nn.Module) -> bool:
    """Tell torch's own blocks that apply an activation inside: transformer layers and recurrent nets with ReLU."""
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return True
    return isinstance(module, (nn.RNN, nn.RNNCell)) and module.nonlinearity == "relu"


def is_torch(module_class: type) -> bool:
    """Tell torch's own layers, whose code holds no activation but those that `conceals` names."""
    return module_class.__module__.startswith("torch.nn.")


@functools.cache
def _names_in_code(chosen: frozenset[str]) -> frozenset[str]:
    """Names under which code may call one of these types as a function or method."""
    chosen |= {"gelu"} if "gelu_tanh" in chosen else set()  # one function, told apart by its argument
    calls = [call for call, name in CALLS.items() if name in chosen and not isinstance(call, type)]
    names = {name for space in (F, torch) for name, value in vars(space).items() if any(value is f for f in calls)}
    return frozenset(names | {call if isinstance(call, str) else getattr(call, "__name__", "") for call in calls})


def _from_torch(value: Any) -> bool:
    home = getattr(value, "__module__", None) or ""
    return home == "builtins" or home.partition(".")[0] == "torch"


def _reaches(value: Any, names: frozenset[str], seen: set[int]) -> bool:
    """Follow a callable into the code that it runs."""
    value = _unwrap(value)
    if id(value) in seen:
        return False
    seen.add(id(value))
    if callable(value) and getattr(value, "__name__", None) in names:
        return True
    if isinstance(value, type):
        return not _from_torch(value) and any(_reaches(member, names, seen) for member in vars(value).values())
    if not isinstance(value, types.FunctionType) or _from_torch(value):
        return False
    used = set(_code_names(value.__code__))
    if used & names:
        return True
    space = value.__globals__
    reached = [cell.cell_contents for cell in value.__closure__ or ()] + [space[name] for name in used if name in space]
    for library in [value for value in reached if isinstance(value, types.ModuleType)]:
        if library.__name__.partition(".")[0] != "torch":
            reached += [vars(library)[name] for name in used if name in vars(library)]
    return any(_reaches(each, names, seen) for each in reached)


def _unwrap(value: Any) -> Any:
    """Take off partial, staticmethod, property and bound methods."""
    while True:
        if isinstance(value, functools.partial):
            value = value.func
        elif isinstance(value, (staticmethod, classmethod, types.MethodType)):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        else:
            return value


def _code_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_names(constant)
