"""Which modules, functions and methods are activations, under the names of the registry (`swish` is also `silu`)."""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from arelu_meta import activations
from arelu_meta.activations import ACTIVATION_MARK
from arelu_meta.errors import InputError, unknown

# What stands between layers. Gates and outputs (sigmoid, softmax, tanh, softplus) are swapped when asked for.
BETWEEN_LAYERS = (
    "relu",
    "relu6",
    "leaky_relu",
    "prelu",
    "rrelu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "swish",
    "hardswish",
    "mish",
)
ALIASES = {"silu": "swish", "hard_swish": "hardswish"}

_CLASSES: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.LeakyReLU: "leaky_relu",
    nn.PReLU: "prelu",
    nn.RReLU: "rrelu",
    nn.ELU: "elu",
    nn.SELU: "selu",
    nn.CELU: "celu",
    nn.GELU: "gelu",
    nn.SiLU: "swish",
    nn.Hardswish: "hardswish",
    nn.Mish: "mish",
    nn.Softplus: "softplus",
    nn.Sigmoid: "sigmoid",
    nn.Hardsigmoid: "hardsigmoid",
    nn.Tanh: "tanh",
}
# Classes of other libraries that compute the same, by their name.
_CLASS_NAMES = {
    "Swish": "swish",
    "SwishMe": "swish",
    "MemoryEfficientSwish": "swish",
    "HardSwish": "hardswish",
    "HardSwishMe": "hardswish",
    "Mish": "mish",
    "MishMe": "mish",
    "PReLU": "prelu",
    "GELU": "gelu",
    "GELUTanh": "gelu",
    "QuickGELU": "gelu",
    "Sigmoid": "sigmoid",
    "HardSigmoid": "hardsigmoid",
    "Tanh": "tanh",
}
_FUNCTIONS: dict[Callable[..., Any], str] = {
    F.relu: "relu",
    torch.relu: "relu",
    torch.relu_: "relu",
    F.relu6: "relu6",
    F.leaky_relu: "leaky_relu",
    F.leaky_relu_: "leaky_relu",
    F.prelu: "prelu",
    torch.prelu: "prelu",
    F.rrelu: "rrelu",
    F.rrelu_: "rrelu",
    torch.rrelu: "rrelu",
    F.elu: "elu",
    F.elu_: "elu",
    F.selu: "selu",
    F.selu_: "selu",
    torch.selu: "selu",
    F.celu: "celu",
    F.celu_: "celu",
    torch.celu: "celu",
    F.gelu: "gelu",
    F.silu: "swish",
    F.hardswish: "hardswish",
    F.mish: "mish",
    F.softplus: "softplus",
    F.sigmoid: "sigmoid",
    torch.sigmoid: "sigmoid",
    F.hardsigmoid: "hardsigmoid",
    F.tanh: "tanh",
    torch.tanh: "tanh",
}
_METHODS = {
    "relu": "relu",
    "relu_": "relu",
    "prelu": "prelu",
    "sigmoid": "sigmoid",
    "sigmoid_": "sigmoid",
    "tanh": "tanh",
    "tanh_": "tanh",
}
KNOWN = sorted({*_CLASSES.values(), *activations.names()})


def asked_kinds(from_: str | Iterable[str] | None, to: object) -> frozenset[str]:
    """Turn `from_` into kinds; None means what stands between layers, but not what is put there."""
    if from_ is None:
        return frozenset(BETWEEN_LAYERS) - {ALIASES.get(str(to), str(to))}
    kinds = frozenset(ALIASES.get(name, name) for name in ([from_] if isinstance(from_, str) else from_))
    if not kinds:
        raise InputError("from_ is empty; name activations to replace, or leave it out")
    for kind in sorted(kinds):
        if kind not in KNOWN and kind not in activations.names():
            raise unknown("activation in from_:", kind, {*KNOWN, *ALIASES, *activations.names()})
    return kinds


def module_kind(module: nn.Module) -> str | None:
    """Name the activation that a module is, or None for a layer or a block."""
    mark = getattr(module, ACTIVATION_MARK, None)
    if isinstance(mark, str):
        return ALIASES.get(mark, mark)
    for known, kind in _CLASSES.items():
        # A subclass with a forward of its own computes something else, and is looked into instead.
        if isinstance(module, known) and type(module).forward is known.forward:
            return kind
    foreign = not type(module).__module__.startswith("torch.") and not any(module.children())
    return _CLASS_NAMES.get(type(module).__name__) if foreign else None


def node_kind(node: fx.Node, modules: dict[str, nn.Module]) -> str | None:
    """Name the activation that a traced call applies, or None."""
    if node.op == "call_module":
        return module_kind(modules[str(node.target)])
    if node.op == "call_function":
        return _FUNCTIONS.get(node.target)  # type: ignore[arg-type]
    return _METHODS.get(str(node.target)) if node.op == "call_method" else None


def old_name(node: fx.Node, modules: dict[str, nn.Module]) -> str:
    """Write a call as the source has it: ReLU, F.relu, torch.relu, Tensor.relu_."""
    if node.op == "call_module":
        return type(modules[str(node.target)]).__name__
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    name = getattr(node.target, "__name__", str(node.target))
    return f"{'F' if getattr(F, name, None) is node.target else 'torch'}.{name}"


def is_in_place(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Tell whether the call overwrites its input."""
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    return name.endswith("_") or bool(node.kwargs.get("inplace"))


def old_function(node: fx.Node, modules: dict[str, nn.Module]) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Give the old activation as a function of one tensor, or None where its other arguments are computed."""
    if node.op == "call_module":
        return modules[str(node.target)]
    rest, options = node.args[1:], {key: value for key, value in node.kwargs.items() if key != "input"}
    if any(isinstance(value, fx.Node) for value in (*rest, *options.values())):
        return None
    function = operator.methodcaller(str(node.target), *rest, **options) if node.op == "call_method" else None
    target = node.target
    return function or (lambda x: target(x, *rest, **options))  # type: ignore[operator]


@functools.cache
def mentioned_names(kinds: frozenset[str]) -> frozenset[str]:
    """Names under which code may call one of these kinds as a function or method."""
    wanted = [function for function, kind in _FUNCTIONS.items() if kind in kinds]
    names = {name for space in (F, torch) for name, value in vars(space).items() if any(value is f for f in wanted)}
    names |= {getattr(function, "__name__", "") for function in wanted}
    return frozenset(names | {name for name, kind in _METHODS.items() if kind in kinds})
