"""What a module without parameters computes, proved from its trace and by computing.

Everybody writes QuickGELU and Swish once more, under any name. A module counts as one of `FORMULAS` when its `forward`
traces into operations on single numbers alone, in training and in evaluation, and its values on `POINTS` are those of
the formula. The formulas differ from each other by 0.0005 and more somewhere on these points.
"""

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from arelu_meta.surgery.tracing import TENSOR, UntraceableError, trace

FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "elu": F.elu,
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "swish": F.silu,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "hardsigmoid": F.hardsigmoid,
    "tanh": torch.tanh,
}
TOLERANCE = 1e-7  # times max(1, |x|); constants are written with ten digits, and some compute in float32
with torch.device("cpu"):  # whatever the default is when this is imported
    POINTS = torch.cat([torch.linspace(-12, 12, 4001, dtype=torch.float64), torch.tensor([-50.0, 50.0]).double()])
# Functions and methods that take single numbers to single numbers and leave what they are given as it was.
# fmt: off
_ON_SINGLE_NUMBERS = frozenset({
    "abs", "add", "celu", "clamp", "clamp_max", "clamp_min", "clip", "div", "elu", "erf", "exp", "expm1", "ge",
    "gelu", "gt", "hardsigmoid", "hardswish", "hardtanh", "le", "leaky_relu", "log", "log1p", "logsigmoid", "lt",
    "maximum", "minimum", "mish", "mul", "multiply", "neg", "pow", "reciprocal", "relu", "relu6", "rsqrt", "rsub",
    "selu", "sigmoid", "sign", "silu", "softplus", "softsign", "sqrt", "square", "sub", "subtract", "tanh",
    "threshold", "true_divide", "truediv", "where",
})
# fmt: on
_DEFAULTS = frozenset(vars(nn.Module()))
_PLAIN = (bool, float, int, str, tuple, type(None))
_known: dict[tuple[Any, ...], str | None] = {}


def formula_of(module: nn.Module) -> str | None:
    """Name the formula that a module without parameters, buffers and children provably computes, or None.

    >>> class Mine(nn.Module):
    ...     def forward(self, x):
    ...         return x * torch.sigmoid(1.702 * x)
    >>> formula_of(Mine())
    'quick_gelu'
    """
    if type(module).__module__.startswith("torch.") or "forward" in vars(module):
        return None
    if any(True for _ in (*module.children(), *module.parameters(), *module.buffers())):
        return None
    settings = {name: value for name, value in vars(module).items() if name not in _DEFAULTS}
    if not all(callable(value) or isinstance(value, _PLAIN) for value in settings.values()):
        return None  # a cache, a counter: more than its formula would be lost
    key = (type(module), tuple(sorted((name, repr(value)) for name, value in settings.items())))
    if key not in _known:
        _known[key] = _proved_formula(module)
    return _known[key]


def _proved_formula(module: nn.Module) -> str | None:
    """Trace the module, look at its operations, and compare its values with each formula."""
    required = [p.name for p in inspect.signature(module.forward).parameters.values() if p.default is p.empty]
    if len(required) != 1:
        return None
    try:
        found = trace(module, {required[0]: TENSOR})
    except UntraceableError:
        return None
    if not all(_on_single_numbers(node) for graph in found.graphs.values() for node in graph.nodes):
        return None
    values = []
    for training in (True, False):
        try:
            with torch.no_grad():
                values.append(copy.deepcopy(module).train(training).forward(POINTS.clone()))
        except Exception:  # whatever a foreign forward raises, it is none of the formulas
            return None
    allowed = TOLERANCE * POINTS.abs().clamp(min=1)
    for name, formula in FORMULAS.items():
        wanted = formula(POINTS)
        if all(value.shape == wanted.shape and bool(((value - wanted).abs() <= allowed).all()) for value in values):
            return name
    return None


def _on_single_numbers(node: fx.Node) -> bool:
    if node.op in ("placeholder", "output"):
        return True
    if node.op not in ("call_function", "call_method") or node.kwargs.get("inplace"):
        return False
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    home = "torch" if node.op == "call_method" else getattr(node.target, "__module__", None) or "torch"
    return name in _ON_SINGLE_NUMBERS and home.partition(".")[0] in ("torch", "_operator")
