"""Trace one module's `forward` with its children left whole, in training and in evaluation mode.

torch.fx runs `forward` on stand-ins for tensors. What it cannot follow it must not guess: branches on values or shapes
raise in torch.fx itself, and here so do questions about the type of a stand-in (`isinstance(x, Tensor)`, which would
quietly say no), state that `forward` leaves on the module, and random numbers drawn outside the graph. Optional
arguments are traced as the caller gives them, because `mask is None` on a stand-in would quietly say no, too.
"""

import builtins
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx, nn

from arelu_meta.errors import InputError

Given: TypeAlias = Any  # an argument: TENSOR, a constant, or a list, tuple or dict of these


class _Tensor:
    def __repr__(self) -> str:
        return "TENSOR"


TENSOR = _Tensor()


class UntraceableError(Exception):
    """The forward pass of a module does something that a trace cannot prove."""


@dataclass(frozen=True)
class Trace:
    """The graphs of one `forward` by mode (True: training); `obstacle` says why they cannot stand in for it."""

    graphs: dict[bool, fx.Graph]
    obstacle: str | None = None


def arguments_of_call(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Given]:
    """Say which parameter of `forward` gets what: TENSOR for computed values, the value itself for constants."""
    try:
        bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    except TypeError as error:
        raise UntraceableError(f"is called with arguments its forward does not take: {error}") from None
    given = dict(list(bound.arguments.items())[1:])
    return {name: _abstract(value) for name, value in given.items()}


def required_arguments(module: nn.Module) -> dict[str, Given]:
    """Assume a tensor for each argument that `forward` cannot do without."""
    parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
    spread = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name: TENSOR for p in parameters if p.default is p.empty and p.kind not in spread}


def trace(module: nn.Module, given: dict[str, Given], inline: frozenset[int] = frozenset()) -> Trace:
    """Trace `forward`; children stay single calls unless their id is in `inline`."""
    if "forward" in vars(module):
        raise UntraceableError("has a forward of its own on the instance")
    if type(module).forward is nn.Sequential.forward and not any(id(child) in inline for child in module.children()):
        graph = _sequential_graph(module)
        return Trace({True: graph, False: graph})
    graphs, obstacles = {}, []
    for training in (True, False):
        with _mode(module, inline, training):
            graphs[training], obstacle = _trace_once(module, given, inline)
        obstacles.append(obstacle)
    return Trace(graphs, obstacles[0] or obstacles[1])


def expect(value: object, traced: object, name: str) -> None:
    """Stop a rewritten `forward` that gets an optional argument it was not traced with."""
    if value is not traced and (isinstance(value, torch.Tensor) or value != traced):
        raise InputError(f"{name} was {traced!r} when the activations were swapped; restore the network to change it")


def _abstract(value: Any) -> Given:
    if isinstance(value, fx.Node):
        return TENSOR
    if isinstance(value, (list, tuple)):
        return [_abstract(item) for item in value] if isinstance(value, list) else tuple(map(_abstract, value))
    return {key: _abstract(item) for key, item in value.items()} if isinstance(value, dict) else value


def _is_constant(given: Given) -> bool:
    if isinstance(given, (list, tuple)):
        return all(map(_is_constant, given))
    return all(map(_is_constant, given.values())) if isinstance(given, dict) else given is not TENSOR


def _stand_in(given: Given, proxy: Any) -> Any:
    """Give `forward` the structure its caller gives it, with stand-ins for the tensors."""
    if isinstance(given, (list, tuple)):
        items = [_stand_in(item, proxy[index]) for index, item in enumerate(given)]
        return items if isinstance(given, list) else tuple(items)
    if isinstance(given, dict):
        return {key: _stand_in(item, proxy[key]) for key, item in given.items()}
    return proxy if given is TENSOR else given


class _BufferProxy(fx.Proxy):
    """A stand-in for a buffer, whose shape is known and does not depend on the input."""

    def __init__(self, node: fx.Node, tracer: fx.Tracer, buffer: torch.Tensor) -> None:
        super().__init__(node, tracer)
        self.shape, self.ndim, self.dtype = buffer.shape, buffer.ndim, buffer.dtype

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]


class _OneLevel(fx.Tracer):
    """A tracer that stops at children, and reads buffers through the graph so that none is changed by tracing."""

    def __init__(self, given: dict[str, Given], inline: frozenset[int]) -> None:
        super().__init__(param_shapes_constant=True)
        self.given, self.inline = given, inline

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return id(m) not in self.inline

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if isinstance(attr_val, torch.Tensor) and not isinstance(attr_val, nn.Parameter):
            for name, buffer in self.root.named_buffers():
                if buffer is attr_val:
                    if name not in parameter_proxy_cache:
                        parameter_proxy_cache[name] = _BufferProxy(
                            self.create_node("get_attr", name, (), {}), self, buffer
                        )
                    return parameter_proxy_cache[name]
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,  # noqa: ARG002
        concrete_args: Any = None,  # noqa: ARG002
    ) -> tuple[Any, list[Any]]:
        positional: list[Any] = [self.root]
        by_name: dict[str, Any] = {}
        for parameter in list(inspect.signature(root_fn).parameters.values())[1:]:
            value = self._argument(parameter)
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional.extend(value)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                by_name[parameter.name] = value
            elif parameter.kind is not parameter.VAR_KEYWORD:
                positional.append(value)
        return (lambda *args: root_fn(*args, **by_name)), positional

    def _argument(self, parameter: inspect.Parameter) -> Any:
        if parameter.kind is parameter.VAR_KEYWORD:
            if parameter.name in self.given:
                raise UntraceableError(f"takes **{parameter.name}")
            return None
        if parameter.kind is parameter.VAR_POSITIONAL:
            proxy = self.create_proxy("placeholder", f"*{parameter.name}", (), {})
            return _stand_in(self.given.get(parameter.name, ()), proxy)
        default = () if parameter.default is parameter.empty else (parameter.default,)
        proxy = self.create_proxy("placeholder", parameter.name, default, {})
        given = self.given.get(parameter.name, parameter.default)
        if _is_constant(given):
            self.create_proxy("call_function", expect, (proxy, given, parameter.name), {})
        return _stand_in(given, proxy)


def _trace_once(module: nn.Module, given: dict[str, Given], inline: frozenset[int]) -> tuple[fx.Graph, str | None]:
    before = {name: dict(vars(child)) for name, child in module.named_modules()}
    tables = {name: _tables(child) for name, child in module.named_modules()}
    states = (random.getstate(), torch.random.get_rng_state())
    try:
        with _typed_questions():
            graph = _OneLevel(given, inline).trace(module)
    except UntraceableError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise UntraceableError(f"cannot be traced: {reason}") from error
    finally:
        changed = _put_back(module, before, tables)
    drawn = states[0] != random.getstate() or not torch.equal(states[1], torch.random.get_rng_state())
    torch.random.set_rng_state(states[1])
    random.setstate(states[0])
    if drawn:
        raise UntraceableError("draws random numbers that do not depend on its input")
    constants = [name for name in changed if name.startswith("_tensor_constant")]
    if len(constants) < len(changed):
        raise UntraceableError(f"stores {', '.join(sorted(set(changed) - set(constants)))} on itself as it runs")
    return graph, "makes tensors of its own as it runs" if constants else None


def _tables(module: nn.Module) -> tuple[dict[str, Any], ...]:
    return dict(module._parameters), dict(module._buffers), dict(module._modules)


def _put_back(module: nn.Module, before: dict[str, dict[str, Any]], tables: dict[str, Any]) -> list[str]:
    """Undo what running `forward` left on the modules, and name it."""
    changed: list[str] = []
    for name, child in list(module.named_modules()):
        if name not in before:
            changed.append(name)
            continue
        now = (vars(child), child._parameters, child._buffers, child._modules)
        for found, old in zip(now, (before[name], *tables[name]), strict=True):
            keys = [key for key in {*found, *old} if found.get(key, TENSOR) is not old.get(key, TENSOR)]
            if keys:
                changed.extend(keys)
                found.clear()
                found.update(old)
    return changed


@contextmanager
def _mode(module: nn.Module, inline: frozenset[int], training: bool) -> Iterator[None]:
    """Set the mode of the traced module and of those traced with it, but not of the children left whole."""
    modules = [module, *(child for child in module.modules() if id(child) in inline)]
    before = [child.training for child in modules]
    for child in modules:
        child.training = training
    try:
        yield
    finally:
        for child, old in zip(modules, before, strict=True):
            child.training = old


@contextmanager
def _typed_questions() -> Iterator[None]:
    """Make `isinstance(stand_in, ...)` an error, except in torch's own code, which knows about stand-ins."""
    original = builtins.isinstance

    def strict(instance: Any, kind: Any) -> bool:
        if type(instance) in _PROXIES and not sys._getframe(1).f_globals.get("__name__", "").startswith("torch."):
            raise UntraceableError("branches on the type of a value")
        return original(instance, kind)

    builtins.isinstance = strict
    try:
        yield
    finally:
        builtins.isinstance = original


_PROXIES = (fx.Proxy, fx.proxy.Attribute, fx.proxy.ParameterProxy, _BufferProxy)


def _sequential_graph(module: nn.Module) -> fx.Graph:
    """Write the graph of a plain nn.Sequential: it calls each of its places once, whatever module fills them."""
    graph = fx.Graph()
    value = graph.placeholder("input")
    for name, _ in module._modules.items():
        value = graph.call_module(name, (value,))
    graph.output(value)
    return graph
