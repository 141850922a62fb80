"""Which modules, functions and methods are activations, and whether code that cannot be traced may apply one.

Names are those of the registry (`swish` is also `silu`). Two approximations of GELU are types of their own, because
they compute something else: `gelu_tanh` is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, `quick_gelu` is
x sigmoid(1.702 x); up to 0.0005 and 0.02 away from x Phi(x).

`cannot_apply` proves an absence from the code alone: no function or method that a module's classes, or the Python
functions they reach, could call bears an activation's name, and no module below it is one. Attention written with
branches on shapes is the common case.
"""

import functools
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from arelu_meta import activations
from arelu_meta.activations import ACTIVATION_MARK
from arelu_meta.errors import InputError, unknown

ALIASES = {"silu": "swish", "hard_swish": "hardswish"}
# Each type: torch's module, functions, methods of tensors; then classes of other libraries by their name.
_TYPES: dict[str, tuple[Any, ...]] = {
    "relu": (nn.ReLU, F.relu, torch.relu, torch.relu_, "relu", "relu_"),
    "relu6": (nn.ReLU6, F.relu6),
    "leaky_relu": (nn.LeakyReLU, F.leaky_relu, F.leaky_relu_),
    "prelu": (nn.PReLU, F.prelu, torch.prelu, "prelu"),
    "rrelu": (nn.RReLU, F.rrelu, F.rrelu_, torch.rrelu),
    "elu": (nn.ELU, F.elu, F.elu_),
    "selu": (nn.SELU, F.selu, F.selu_, torch.selu),
    "celu": (nn.CELU, F.celu, F.celu_, torch.celu),
    "gelu": (nn.GELU, F.gelu),
    "gelu_tanh": (),
    "quick_gelu": (),
    "swish": (nn.SiLU, F.silu),
    "hardswish": (nn.Hardswish, F.hardswish),
    "mish": (nn.Mish, F.mish),
    "softplus": (nn.Softplus, F.softplus),
    "sigmoid": (nn.Sigmoid, F.sigmoid, torch.sigmoid, "sigmoid", "sigmoid_"),
    "hardsigmoid": (nn.Hardsigmoid, F.hardsigmoid),
    "tanh": (nn.Tanh, F.tanh, torch.tanh, "tanh", "tanh_"),
}
# What is replaced by default. Gates and outputs (sigmoid, softmax, tanh, softplus) are swapped when asked for.
BETWEEN_LAYERS = frozenset(_TYPES) - {"softplus", "sigmoid", "hardsigmoid", "tanh"}
_FOREIGN_CLASSES = {
    **dict.fromkeys(("Swish", "SwishMe", "MemoryEfficientSwish"), "swish"),
    **dict.fromkeys(("HardSwish", "HardSwishMe"), "hardswish"),
    **dict.fromkeys(("Mish", "MishMe"), "mish"),
    "GELU": "gelu",
    "GELUTanh": "gelu_tanh",
    "QuickGELU": "quick_gelu",
    "PReLU": "prelu",
    "Sigmoid": "sigmoid",
    "HardSigmoid": "hardsigmoid",
    "Tanh": "tanh",
}
_CALLS = {call: name for name, calls in _TYPES.items() for call in calls}


def types_to_replace(from_: str | Iterable[str] | None, to: object) -> frozenset[str]:
    """Turn `from_` into types; None means what stands between layers, but not what is put there."""
    if from_ is None:
        return BETWEEN_LAYERS - {ALIASES.get(str(to), str(to))}
    chosen = frozenset(ALIASES.get(name, name) for name in ([from_] if isinstance(from_, str) else from_))
    if not chosen:
        raise InputError("`from_` is empty; name activations to replace, or leave it out")
    known = {*_TYPES, *activations.names()}
    for name in sorted(chosen):
        if name not in known:
            raise unknown("activation in `from_`:", name, known | ALIASES.keys())
    return chosen


def module_type(module: nn.Module) -> str | None:
    """Name the activation that a module is, or None for a layer or a block."""
    mark = getattr(module, ACTIVATION_MARK, None)
    if isinstance(mark, str):
        return ALIASES.get(mark, mark)
    for known, name in _CALLS.items():
        # A subclass with a forward of its own computes something else, and is looked into instead.
        if not isinstance(known, type) or not issubclass(known, nn.Module):
            continue
        if isinstance(module, known) and type(module).forward is known.forward:
            return "gelu_tanh" if getattr(module, "approximate", "none") == "tanh" else name
    foreign = not type(module).__module__.startswith("torch.") and not any(module.children())
    return _FOREIGN_CLASSES.get(type(module).__name__) if foreign else None


def node_type(node: fx.Node, modules: dict[str, nn.Module]) -> str | None:
    """Name the activation that a traced call applies, or None."""
    if node.op == "call_module":
        return module_type(modules[str(node.target)])
    if node.op not in ("call_function", "call_method"):
        return None
    name = _CALLS.get(node.target)
    return "gelu_tanh" if name == "gelu" and node.kwargs.get("approximate") == "tanh" else name


def source_text(node: fx.Node, modules: dict[str, nn.Module]) -> str:
    """Write a call as the source has it: ReLU, F.relu, torch.relu, Tensor.relu_."""
    if node.op == "call_module":
        return type(modules[str(node.target)]).__name__
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    name = getattr(node.target, "__name__", str(node.target))
    return f"{'F' if getattr(F, name, None) is node.target else 'torch'}.{name}"


def as_function(node: fx.Node, modules: dict[str, nn.Module]) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Give the activation of a call as a function of one tensor, or None where its other arguments are computed."""
    if node.op == "call_module":
        return modules[str(node.target)]
    rest, options = node.args[1:], {key: value for key, value in node.kwargs.items() if key != "input"}
    if any(isinstance(value, fx.Node) for value in (*rest, *options.values())):
        return None
    if node.op == "call_method":
        return operator.methodcaller(str(node.target), *rest, **options)
    target = node.target
    return lambda x: target(x, *rest, **options)  # type: ignore[operator]


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
    calls = [call for call, name in _CALLS.items() if name in chosen and not isinstance(call, type)]
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
