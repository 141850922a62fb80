"""Prove from the code alone that a module that cannot be traced applies no activation of the kinds asked for.

No function or method that its classes, or the Python functions they reach, could call bears an activation's name, and
no module below it is one. Attention written with branches on shapes is the common case.
"""

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from arelu_meta.surgery.kinds import mentioned_names, module_kind


def applies_none(module: nn.Module, kinds: frozenset[str]) -> bool:
    """Tell whether neither the module nor any below it can apply one of these kinds."""
    names = mentioned_names(kinds)
    for child in module.modules():
        if module_kind(child) in kinds or conceals(child):
            return False
        if not is_torch(type(child)) and _mentions(child, names):
            return False
    return True


def conceals(module: nn.Module) -> bool:
    """Tell torch's own blocks that apply an activation inside: transformer layers and recurrent nets with ReLU."""
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return True
    return isinstance(module, (nn.RNN, nn.RNNCell)) and module.nonlinearity == "relu"


def is_torch(kind: type) -> bool:
    """Tell torch's own layers, whose code holds no activation but those that `conceals` names."""
    return kind.__module__.startswith("torch.nn.")


def _mentions(module: nn.Module, names: frozenset[str]) -> bool:
    seen: set[int] = set()
    starts = [value for cls in type(module).__mro__ if not _from_torch(cls) for value in vars(cls).values()]
    starts += [value for value in vars(module).values() if not isinstance(value, nn.Module)]
    return any(_reaches(value, names, seen) for value in starts)


def _from_torch(value: Any) -> bool:
    home = getattr(value, "__module__", None) or ""
    return home == "builtins" or home.partition(".")[0] == "torch"


def _reaches(value: Any, names: frozenset[str], seen: set[int]) -> bool:
    """Follow a callable into the code that it runs."""
    value = inner(value)
    if id(value) in seen:
        return False
    seen.add(id(value))
    if callable(value) and getattr(value, "__name__", None) in names:
        return True
    if isinstance(value, type):
        return not _from_torch(value) and any(_reaches(part, names, seen) for part in vars(value).values())
    if not isinstance(value, types.FunctionType) or _from_torch(value):
        return False
    used = set(_code_names(value.__code__))
    if used & names:
        return True
    space = value.__globals__
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    reached = cells + [space[name] for name in used if name in space]
    modules = [
        part for part in reached if isinstance(part, types.ModuleType) and part.__name__.partition(".")[0] != "torch"
    ]
    reached += [vars(part)[name] for part in modules for name in used if name in vars(part)]
    return any(_reaches(part, names, seen) for part in reached)


def inner(value: Any) -> Any:
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


def function_mentions(function: Callable[..., Any], kinds: frozenset[str]) -> bool:
    """Tell whether a function that a trace keeps whole (`torch.fx.wrap`) could apply one of these kinds."""
    return _reaches(function, mentioned_names(kinds), set())


def _code_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_names(constant)
