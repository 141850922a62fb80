"""Which modules, functions and methods are activations.

Names are those of the registry (`swish` is also `silu`). Two approximations of GELU are types of their own, because
they compute something else: `gelu_tanh` is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, `quick_gelu` is
x sigmoid(1.702 x); up to 0.0005 and 0.02 away from x Phi(x).

Classes of other libraries are known by where they come from (`package.module:Class`), never by their name alone: a
`Swish` with a learned factor is not torch's. Any other module without parameters is known by what it computes, if
`formulas` can prove it.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from arelu_meta import activations
from arelu_meta.activations import ACTIVATION_MARK
from arelu_meta.errors import InputError, unknown
from arelu_meta.surgery.formulas import formula_of, holds_state

ALIASES = {"silu": "swish", "hard_swish": "hardswish"}
# Each type: torch's module, functions, methods of tensors.
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
# Classes of other libraries, by module: what each computes.
_FOREIGN: dict[str, dict[str, str]] = {
    "timm.layers.activations": {
        "swish": "Swish",
        "hardswish": "HardSwish",
        "mish": "Mish",
        "gelu": "GELU",
        "gelu_tanh": "GELUTanh",
        "quick_gelu": "QuickGELU",
        "prelu": "PReLU",
        "sigmoid": "Sigmoid",
        "hardsigmoid": "HardSigmoid",
        "tanh": "Tanh",
    },
    "timm.layers.activations_me": {
        "swish": "SwishMe",
        "hardswish": "HardSwishMe",
        "mish": "MishMe",
        "hardsigmoid": "HardSigmoidMe",
    },
    "transformers.activations": {
        "gelu": "GELUActivation",
        "gelu_tanh": "GELUTanh NewGELUActivation FastGELUActivation AccurateGELUActivation",
        "quick_gelu": "QuickGELUActivation",
        "swish": "SiLUActivation",
        "mish": "MishActivation",
    },
    "efficientnet_lite_pytorch.utils": {"swish": "Swish MemoryEfficientSwish"},
    "efficientnet_pytorch.utils": {"swish": "Swish MemoryEfficientSwish"},
}
FOREIGN_CLASSES = {
    f"{home}:{name}": activation
    for home, classes in _FOREIGN.items()
    for activation, listed in classes.items()
    for name in listed.split()
}
CALLS = {call: name for name, calls in _TYPES.items() for call in calls}


def types_to_replace(from_: str | Iterable[str] | None, to: object) -> frozenset[str]:
    """Turn `from_` into types; None means what stands between layers, but not what is put there."""
    if from_ is None:
        return BETWEEN_LAYERS - {ALIASES.get(str(to), str(to))}
    listed = [from_] if isinstance(from_, str) else list(from_) if isinstance(from_, Iterable) else [from_]
    if not all(isinstance(name, str) for name in listed):
        raise InputError(f"`from_` is the name of an activation, several, or None, not {from_!r}")
    chosen = frozenset(ALIASES.get(name, name) for name in listed)
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
    for known, name in CALLS.items():
        if not isinstance(known, type) or not issubclass(known, nn.Module) or not isinstance(module, known):
            continue
        # A subclass that computes something else, or holds what would be lost, is looked into instead.
        kept = type(module).forward is known.forward and not holds_state(module, ("weight",) if name == "prelu" else ())
        if type(module) is known or kept:
            return "gelu_tanh" if getattr(module, "approximate", "none") == "tanh" else name
    home = type(module)
    return FOREIGN_CLASSES.get(f"{home.__module__}:{home.__qualname__}") or formula_of(module)


def node_type(node: fx.Node, modules: dict[str, nn.Module]) -> str | None:
    """Name the activation that a traced call applies, or None."""
    if node.op == "call_module":
        return module_type(modules[str(node.target)])
    if node.op not in ("call_function", "call_method"):
        return None
    name = CALLS.get(node.target)
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
