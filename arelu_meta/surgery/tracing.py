"""Trace one module's `forward` with its children left whole, in training and in evaluation mode.

torch.fx runs `forward` on proxies of tensors. What it cannot follow it must not guess: branches on values or shapes
raise in torch.fx itself, and here so do questions about the type of a proxy (`isinstance(x, Tensor)`, which would
quietly say no), values looked up in dicts and sets (which would quietly not be there), state that `forward` leaves on
the module, random numbers drawn outside the graph, and autograd functions, whose backward a graph does not have.
Optional arguments are traced as the caller gives them, because `mask is None` on a proxy would quietly say no, too.
"""

import dis
import inspect
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch import fx, nn

from arelu_meta.errors import InputError, first_line

Given: TypeAlias = Any  # an argument: TENSOR, a constant, or a list, tuple or dict of these


class _Tensor:
    def __repr__(self) -> str:
        return "TENSOR"


TENSOR = _Tensor()
_MODULE_DICTS = {name for name, value in vars(nn.Module()).items() if isinstance(value, dict)}
# torch.fx patches nn.Module while it traces; traces of two threads that interleave would leave it patched.
_ONE_TRACE = threading.Lock()


class UntraceableError(Exception):
    """The forward pass of a module does something that a trace cannot prove."""


@dataclass(frozen=True)
class Trace:
    """The graphs of one `forward` by mode (True: training); `obstacle` says why they cannot replace it."""

    graphs: dict[bool, fx.Graph]
    obstacle: str | None = None


def arguments_of_call(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Given]:
    """Say which parameter of `forward` gets what: TENSOR for computed values, the value itself for constants."""

    def abstract(value: Any) -> Given:
        if isinstance(value, fx.Node):
            return TENSOR
        if isinstance(value, (list, tuple)):
            return [abstract(item) for item in value] if isinstance(value, list) else tuple(map(abstract, value))
        return {key: abstract(item) for key, item in value.items()} if isinstance(value, dict) else value

    try:
        bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    except TypeError as error:
        raise UntraceableError(f"is called with arguments its forward does not take: {error}") from None
    return {name: abstract(value) for name, value in list(bound.arguments.items())[1:]}


def trace(module: nn.Module, given: dict[str, Given], inline: frozenset[int] = frozenset()) -> Trace:
    """Trace `forward` in both modes; children stay single calls unless their id is in `inline`.

    Args:
        module: the block to trace; it is left as it was
        given: what its caller passes for each parameter of `forward`
        inline: ids of modules below that are traced as pieces of this one

    Raises:
        UntraceableError: `forward` does something that a trace cannot prove
    """
    if "forward" in vars(module):
        raise UntraceableError("has a forward of its own on the instance")
    if type(module).forward is nn.Sequential.forward and not any(id(child) in inline for child in module.children()):
        # It calls each of its places once, whatever module fills them; a trace would not tell two places of one module.
        graph = fx.Graph()
        value = graph.placeholder("input")
        for name, _ in module.named_modules(remove_duplicate=False):
            if name and "." not in name:
                value = graph.call_module(name, (value,))
        graph.output(value)
        return Trace({True: graph, False: graph})
    # Children that are left whole keep their mode.
    modules = [module, *(child for child in module.modules() if id(child) in inline)]
    before = [child.training for child in modules]
    graphs, obstacles = {}, []
    try:
        for training in (True, False):
            for child in modules:
                child.training = training
            graphs[training], obstacle = _trace_once(module, given, inline)
            obstacles.append(obstacle)
    finally:
        for child, old in zip(modules, before, strict=True):
            child.training = old
    return Trace(graphs, obstacles[0] or obstacles[1])


def expect(value: object, traced: object, name: str) -> None:
    """Stop a rewritten `forward` that gets an optional argument it was not traced with."""
    if value is not traced and (isinstance(value, torch.Tensor) or value != traced):
        raise InputError(f"{name} was {traced!r} when the activations were swapped; restore the network to change it")


def _trace_once(module: nn.Module, given: dict[str, Given], inline: frozenset[int]) -> tuple[fx.Graph, str | None]:
    """Trace in the present mode and undo what running `forward` left on the modules; give what it left, too."""
    # Attributes, and those that are dicts one level deeper: parameters, buffers, children, caches.
    snapshot = []
    for child in module.modules():
        snapshot.append((vars(child), dict(vars(child)), True))
        dicts = ((name, value) for name, value in vars(child).items() if isinstance(value, dict))
        snapshot += [(value, dict(value), name in _MODULE_DICTS) for name, value in dicts]
    states = (random.getstate(), torch.random.get_rng_state())
    tracer = _BlockTracer(given, inline)
    try:
        with _ONE_TRACE, _no_autograd_functions():
            graph = tracer.trace(module)
    except UntraceableError:
        raise
    except Exception as error:
        raise UntraceableError(f"cannot be traced: {first_line(error).partition('. ')[0]}") from error
    finally:
        changed: list[str] = []
        for live, old, is_state in snapshot:
            keys = [key for key in {*live, *old} if live.get(key, TENSOR) is not old.get(key, TENSOR)]
            if keys:
                changed.extend(keys if is_state else ())  # what is kept in a dict of its own is a cache
                live.clear()
                live.update(old)
    drawn = states[0] != random.getstate() or not torch.equal(states[1], torch.random.get_rng_state())
    torch.random.set_rng_state(states[1])
    random.setstate(states[0])
    if drawn:
        raise UntraceableError("draws random numbers that do not depend on its input")
    constants = [name for name in changed if name.startswith("_tensor_constant")]
    if len(constants) < len(changed):
        raise UntraceableError(f"stores {', '.join(sorted(set(changed) - set(constants)))} on itself as it runs")
    return graph, tracer.obstacle or ("makes tensors of its own as it runs" if constants else None)


@contextmanager
def _no_autograd_functions() -> Iterator[None]:
    """Refuse `autograd.Function.apply`, which would run the function's forward on proxies and forget its backward."""

    # It is written in C and often kept under another name, so that nothing can take its place.
    def look(_frame: FrameType, event: str, called: Any) -> None:
        owner = getattr(called, "__self__", None) if event == "c_call" and called.__name__ == "apply" else None
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            raise UntraceableError(f"calls the autograd function {owner.__name__}, which has a backward of its own")

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _is_constant(given: Given) -> bool:
    if isinstance(given, (list, tuple)):
        return all(map(_is_constant, given))
    return all(map(_is_constant, given.values())) if isinstance(given, dict) else given is not TENSOR


def _like_given(given: Given, proxy: Any) -> Any:
    """Give `forward` the structure its caller gives it, with proxies for the tensors."""
    if isinstance(given, (list, tuple)):
        items = [_like_given(item, proxy[index]) for index, item in enumerate(given)]
        return items if isinstance(given, list) else tuple(items)
    if isinstance(given, dict):
        return {key: _like_given(item, proxy[key]) for key, item in given.items()}
    return proxy if given is TENSOR else given


class _NoType:
    """Refuse `isinstance(proxy, ...)`, which asks for `__class__`, but in torch's code; and look-ups, by the hash."""

    def __hash__(self) -> int:
        if not sys._getframe(1).f_globals.get("__name__", "").startswith("torch."):
            raise UntraceableError("looks a value up in a dict or set")
        return id(self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_name == "__instancecheck__":
            frame = frame.f_back  # of an abstract class, or of nn.Parameter
        code, asking = frame.f_code, ("isinstance", "__class__")
        if set(asking) & set(code.co_names) and not frame.f_globals.get("__name__", "").startswith("torch."):
            # Functions written in C ask, too, and may: the expression that runs must begin with one of the names.
            line, _, column, _ = list(code.co_positions())[frame.f_lasti // 2]
            asks = [each.positions for each in dis.get_instructions(code) if each.argval in asking]
            if any(place and (place.lineno, place.col_offset) == (line, column) for place in asks):
                raise UntraceableError("branches on the type of a value")
        return type(self)


class Proxy(_NoType, fx.Proxy):
    """A tensor in a trace, or what is computed from one."""

    def __getattr__(self, k: str) -> fx.proxy.Attribute:
        return _Attribute(self, k)


class _Attribute(_NoType, fx.proxy.Attribute):
    def __getattr__(self, k: str) -> fx.proxy.Attribute:
        return _Attribute(self, k)


class _ConstantProxy(Proxy):
    """A proxy of a parameter or a buffer, whose shape is known and does not depend on the input."""

    def __init__(self, node: fx.Node, tracer: fx.Tracer, value: torch.Tensor) -> None:
        super().__init__(node, tracer)
        self.shape, self.ndim, self.size, self.dim, self.numel = (
            value.shape, value.ndim, value.size, value.dim, value.numel,
        )  # fmt: skip
        if not isinstance(value, nn.Parameter):
            self.dtype = value.dtype


class _BlockTracer(fx.Tracer):
    """A tracer that stops at children, and reads buffers through the graph so that none is changed by tracing.

    While torch.fx traces, calls of modules in other threads come here, too, and are passed on.
    """

    def __init__(self, given: dict[str, Given], inline: frozenset[int]) -> None:
        super().__init__()
        self.given, self.inline = given, inline
        self.thread = threading.get_ident()
        self.contexts: tuple[bool, ...] = ()
        self.obstacle = ""

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        # What contexts inside `forward` change, and no graph keeps; the first node is made before it runs.
        contexts = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda"))
        self.contexts = self.contexts or contexts
        if contexts != self.contexts:
            self.obstacle = "switches gradients or autocast as it runs"
        return super().create_node(*args, **kwargs)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return id(m) not in self.inline

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return Proxy(node, self)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:  # noqa: ARG002
        if isinstance(attr_val, torch.Tensor) and threading.get_ident() == self.thread:
            for name, value in (*self.root.named_parameters(), *self.root.named_buffers()):
                if value is attr_val:
                    if name not in parameter_proxy_cache:
                        node = self.create_node("get_attr", name, (), {})
                        parameter_proxy_cache[name] = _ConstantProxy(node, self, value)
                    return parameter_proxy_cache[name]
        return attr_val

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,  # noqa: ARG002
        concrete_args: Any = None,  # noqa: ARG002
    ) -> tuple[Any, list[Any]]:
        positional: list[Any] = [self.root]
        by_name: dict[str, Any] = {}
        for parameter in list(inspect.signature(root_fn).parameters.values())[1:]:
            name = parameter.name
            if parameter.kind is parameter.VAR_KEYWORD:
                if name in self.given:
                    raise UntraceableError(f"takes **{name}")
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                proxy = self.create_proxy("placeholder", f"*{name}", (), {})
                positional.extend(_like_given(self.given.get(name, ()), proxy))
                continue
            default = () if parameter.default is parameter.empty else (parameter.default,)
            proxy = self.create_proxy("placeholder", name, default, {})
            given = self.given.get(name, parameter.default)
            if _is_constant(given):
                self.create_proxy("call_function", expect, (proxy, given, name), {})
            value = _like_given(given, proxy)
            if parameter.kind is parameter.KEYWORD_ONLY:
                by_name[name] = value
            else:
                positional.append(value)
        return (lambda *args: root_fn(*args, **by_name)), positional
