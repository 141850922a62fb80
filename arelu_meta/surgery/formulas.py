"""What a module without parameters computes, proved from its trace and by computing.

Everybody writes QuickGELU and Swish once more, under any name. A module counts as one of `FORMULAS` when its `forward`
traces into operations on single numbers alone, in training and in evaluation, and its values on `POINTS` are those of
the formula, its derivatives on `SMOOTH_POINTS`, too. The formulas differ from each other by 0.0005 and more somewhere
on these points.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from arelu_meta.kernels.module_internals import copy_without_hooks
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
DERIVATIVE_TOLERANCE = 1e-5  # in float32 the slope of a tanh near 1 has few digits
with torch.device("cpu"):  # whatever the default is when this is imported
    _FAR = torch.logspace(2, 30, 57, dtype=torch.float64)  # a bound may be at any height
    SMOOTH_POINTS = torch.cat(
        [torch.linspace(-12, 12, 4001, dtype=torch.float64), torch.tensor([-50.0, 50.0]).double()]
    )
    POINTS = torch.cat([SMOOTH_POINTS, -_FAR, _FAR])
    for _kink in (-3.0, 0.0, 3.0, 6.0):  # of relu, relu6, hardswish: either side's derivative is right there
        SMOOTH_POINTS = SMOOTH_POINTS[(SMOOTH_POINTS - _kink).abs() > 1e-3]
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
# Inside one swap: what was found of each module, which is held so that its id is not given again.
_known: ContextVar[dict[int, tuple[nn.Module, str | None]] | None] = ContextVar("known_formulas", default=None)


@contextmanager
def remember_formulas() -> Iterator[None]:
    """Prove each module once inside, because a swap asks often; outside, a module or its class may have changed."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def formula_of(module: nn.Module) -> str | None:
    """Name the formula that a module without parameters, buffers and children provably computes, or None.

    >>> class Mine(nn.Module):
    ...     def forward(self, x):
    ...         return x * torch.sigmoid(1.702 * x)
    >>> formula_of(Mine())
    'quick_gelu'
    """
    if type(module).__module__.startswith("torch.") or "forward" in vars(module) or holds_state(module):
        return None
    known = _known.get()
    if known is None:
        return _proved_formula(module)
    if id(module) not in known:
        known[id(module)] = (module, _proved_formula(module))
    return known[id(module)][1]


def holds_state(module: nn.Module, known: tuple[str, ...] = ()) -> bool:
    """Tell whether a module has parameters or buffers but those `known`, or children, a cache, a counter."""
    state = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    if any(True for _ in module.children()) or not state <= {*known}:
        return True
    settings = [value for name, value in vars(module).items() if name not in _DEFAULTS]
    return not all(callable(value) or isinstance(value, _PLAIN) for value in settings)


def _proved_formula(module: nn.Module) -> str | None:
    """Trace the module, look at its operations, and compare its values and derivatives with each formula."""
    required = [p.name for p in inspect.signature(module.forward).parameters.values() if p.default is p.empty]
    if len(required) != 1:
        return None
    try:
        found = trace(module, {required[0]: TENSOR})
    except UntraceableError:
        return None
    if found.obstacle is not None or not all(
        _on_single_numbers(node) for graph in found.graphs.values() for node in graph.nodes
    ):
        return None
    try:
        computed = [_compute(copy_without_hooks(module).train(training).forward) for training in (True, False)]
    except Exception:  # whatever a foreign forward raises, it is none of the formulas
        return None
    for name, formula in FORMULAS.items():
        if all(
            _close(found, wanted, TOLERANCE * x.abs().clamp(min=1) if is_value else DERIVATIVE_TOLERANCE)
            for results in computed
            for (x, is_value, found), (_, _, wanted) in zip(results, _compute(formula), strict=True)
        ):
            return name
    return None


def _compute(function: Callable[[Tensor], Tensor]) -> list[tuple[Tensor, bool, Tensor]]:
    """Give points, whether values, and results: derivatives, and values with and without gradients (code may ask)."""
    x = SMOOTH_POINTS.clone().requires_grad_()
    with torch.enable_grad():
        (derivative,) = torch.autograd.grad(function(x * 1.0).sum(), x)
        values = function(POINTS.clone().requires_grad_() * 1.0)
    with torch.no_grad():
        return [(SMOOTH_POINTS, False, derivative), (POINTS, True, values), (POINTS, True, function(POINTS.clone()))]


def _close(found: object, wanted: Tensor, allowed: Tensor | float) -> bool:
    if not isinstance(found, Tensor) or found.shape != wanted.shape:
        return False
    return bool(((found - wanted).abs() <= allowed).all())


def _on_single_numbers(node: fx.Node) -> bool:
    if node.op in ("placeholder", "output"):
        return True
    if node.op not in ("call_function", "call_method") or node.kwargs.get("inplace"):
        return False
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    home = "torch" if node.op == "call_method" else getattr(node.target, "__module__", None) or "torch"
    return name in _ON_SINGLE_NUMBERS and home.partition(".")[0] in ("torch", "_operator")
