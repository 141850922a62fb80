"""Whether code that no trace follows can apply an activation, read from the code itself.

`cannot_apply` proves an absence: no function or method that a module's classes, or the Python functions they reach,
could call bears an activation's name, and no module below it is one. Attention written with branches on shapes is the
common case. `activations_in_code` lists what a block may call by function or method, or make as it runs.
"""

import ast
import dis
import functools
import inspect
import itertools
import textwrap
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from arelu_meta.kernels.module_internals import is_compiled
from arelu_meta.surgery.activation_types import CALLS, FOREIGN_CLASSES, module_type

LOOKED_UP = "a function looked up by name"  # getattr(F, name)
_DEFAULTS = frozenset(vars(nn.Module()))


def cannot_apply(module: nn.Module, chosen: frozenset[str]) -> bool:
    """Tell whether neither the module nor any below it can apply one of these types."""
    for child in module.modules():
        kind: Any = type(child)
        if module_type(child) in chosen or concealment(child):
            return False
        if is_torch(kind):
            continue
        if class_may_apply(kind, chosen) or activations_in_code(child, chosen):
            return False
    return True


@functools.cache
def class_may_apply(module_class: type[Any], chosen: frozenset[str]) -> bool:
    """Tell whether any code of a class could apply one of these types; `swap` forgets it after each network."""
    members = [item for cls in module_class.__mro__ if not from_torch(cls) for item in vars(cls).items()]
    starts = [value for name, value in members if name != "__init__"]  # has run
    # Methods that made children have run, too: classes of activations count in the code of `forward` alone.
    return any(True for _ in _reached(starts, _names_in_code(chosen), chosen))


def activations_in_code(module: nn.Module, chosen: frozenset[str]) -> list[str]:
    """Names of functions, methods and classes of these types in the code that `forward` of this module reaches.

    Children that bear such a name are called by it and do not count; nor does what their own `forward` calls.
    """
    names, functions = _names_in_code(chosen), functions_of(module)
    made = names | {call.__name__ for call, name in CALLS.items() if isinstance(call, type) and name in chosen}
    children = {name for name, _ in module.named_children()}
    found: set[str] = set()
    values: list[Any] = []
    for function in functions:
        used = _names_used(function, children)
        found |= used & made
        values += _values_used(function, used)
    # The class itself, which `super` names, has made its children already.
    known = {id(value) for value in (*functions, *type(module).__mro__)}
    own = [value for name, value in vars(module).items() if name not in _DEFAULTS]
    return sorted(found.union(_reached(values, made, chosen, known), _reached(own, names, chosen, known)))


def names_in_forward(module: nn.Module) -> set[str]:
    """Names that `forward` and the methods it uses load."""
    return {name for function in functions_of(module) for name in code_names(function.__code__)}


def functions_of(module: nn.Module) -> list[types.FunctionType]:
    """List `forward`, what decorators have wrapped, and the methods whose names these use, also of modules below."""
    classes = {cls for child in module.modules() for cls in type(child).__mro__ if not from_torch(cls)}
    waiting: list[Any] = [type(module).forward, type(module).__call__]
    found: list[types.FunctionType] = []
    while waiting:
        function = _unwrap(waiting.pop())
        if not isinstance(function, types.FunctionType) or from_torch(function) or function in found:
            continue
        found.append(function)
        names = set(code_names(function.__code__))
        if names & {"super", "forward"}:
            waiting += [vars(cls)["forward"] for cls in type(module).__mro__ if "forward" in vars(cls)]
        names.discard("forward")
        waiting += [vars(cls)[name] for cls in classes for name in names if name in vars(cls)]
        waiting.append(getattr(function, "__wrapped__", None))
    return found


def may_apply(function: Callable[..., Any], chosen: frozenset[str]) -> bool:
    """Tell whether a function that a trace keeps whole (`torch.fx.wrap`) could apply one of these types."""
    return any(True for _ in _reached([function], _names_in_code(chosen), chosen))


def concealment(module: nn.Module) -> str | None:
    """Say how a module keeps its activations from every trace: torch's own blocks, wrappers, compiled code; or None."""
    blocks = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.TransformerEncoder, nn.TransformerDecoder)
    recurrent = isinstance(module, (nn.RNN, nn.RNNCell)) and module.nonlinearity == "relu"
    if recurrent or isinstance(module, (*blocks, nn.Transformer)):
        return f"applies its activation inside torch's {type(module).__name__}"
    # An exported graph calls operators, each of which belongs to a packet of overloads.
    exported = isinstance(module, fx.GraphModule) and any(
        hasattr(node.target, "overloadpacket") for node in module.graph.nodes
    )
    return f"hides its forward pass in a {type(module).__name__}" if exported or is_wrapper(module) else None


def is_wrapper(module: nn.Module) -> bool:
    """Tell what torch puts around a network, or compiles it to, from a network."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel, torch.jit.ScriptModule)
    return isinstance(module, wrappers) or is_compiled(module)


def is_torch(module_class: type) -> bool:
    """Tell torch's own layers, whose code holds no activation but those that `concealment` names."""
    return module_class.__module__.startswith("torch.nn.")


@functools.cache
def _names_in_code(chosen: frozenset[str]) -> frozenset[str]:
    """Names under which code may call one of these types as a function or method."""
    chosen |= {"gelu"} if "gelu_tanh" in chosen else set()  # one function, told apart by its argument
    calls = [call for call, name in CALLS.items() if name in chosen and not isinstance(call, type)]
    names = {name for space in (F, torch) for name, value in vars(space).items() if any(value is f for f in calls)}
    names.add(LOOKED_UP)
    return frozenset(names | {call if isinstance(call, str) else getattr(call, "__name__", "") for call in calls})


def from_torch(value: Any) -> bool:
    """Tell code of torch, or of Python, from that of others."""
    home = getattr(value, "__module__", None) or ""
    return home == "builtins" or home.partition(".")[0] == "torch"


def _reached(
    starts: Iterable[Any], names: frozenset[str], chosen: frozenset[str], known: Iterable[int] = ()
) -> Iterator[str]:
    """Follow callables into the code that they run, but for those of the ids `known`; give the activations met."""
    waiting, seen = list(starts), set(known)
    while waiting:
        value = _unwrap(waiting.pop())
        if id(value) in seen:
            continue
        seen.add(id(value))
        if callable(value) and (name := getattr(value, "__name__", None)) in names:
            yield str(name)
        elif isinstance(value, type):
            if FOREIGN_CLASSES.get(f"{value.__module__}:{value.__qualname__}") in chosen:
                yield value.__name__
            waiting += [] if from_torch(value) else vars(value).values()
        elif isinstance(value, nn.Module):  # one that is no child: a global
            if (kind := module_type(value)) in chosen:
                yield str(kind)
            waiting += [] if is_torch(type(value)) else [type(value).forward]
        elif isinstance(value, (Mapping, list, tuple)):  # functions and classes by name or number
            # A subclass of dict may make something when it is asked, as `ACT2FN` of transformers does.
            held = dict.values(value) if isinstance(value, dict) else value
            items = held.values() if isinstance(held, Mapping) else held
            waiting += [item for item in items if callable(item) or isinstance(item, tuple)]
        elif isinstance(value, types.FunctionType) and not from_torch(value):
            used = _names_used(value)
            yield from used & names
            waiting += _values_used(value, used)


def _values_used(function: types.FunctionType, used: set[str]) -> list[Any]:
    """Values that a function's names stand for: in its closure, in its module, and in libraries that it names."""
    filled = [cell for cell in function.__closure__ or () if cell != types.CellType()]
    space = function.__globals__
    values = [cell.cell_contents for cell in filled] + [space[name] for name in used if name in space]
    for library in [value for value in values if isinstance(value, types.ModuleType)]:
        if library.__name__.partition(".")[0] != "torch":
            values += [vars(library)[name] for name in used if name in vars(library)]
    return values


def _names_used(function: types.FunctionType, children: Collection[str] = ()) -> set[str]:
    """Names that a function loads, and `LOOKED_UP` where it asks torch for a function by name."""
    used = set(code_names(function.__code__, children))
    if "getattr" in used and _looks_up(function):
        used.add(LOOKED_UP)
    return used


def _looks_up(function: types.FunctionType) -> bool:
    """Whether a function asks torch for something by name, and may call what it is given.

    A library is looked up so, too: `getattr(torch, "cuda")`. Where attributes are all that the source takes of it, what
    is called has its name in the code.
    """

    def is_torch_module(name: Any) -> bool:
        value = function.__globals__.get(name) if isinstance(name, str) else None
        return isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] == "torch"

    loads = [each.argval for each in dis.get_instructions(function.__code__) if each.opname.startswith("LOAD")]
    if not any(load == "getattr" and is_torch_module(after) for load, after in itertools.pairwise(loads)):
        return False
    parents = None if hasattr(function, "__wrapped__") else syntax_of(function)  # which would be that of the other
    calls = [node for node in parents or () if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr"]
    asked = [call for call in calls if is_torch_module(ast.unparse(call.args[0]).partition(".")[0])]
    return not asked or not all(_gives_attributes(call, parents or {}) for call in asked)


def _gives_attributes(call: ast.Call, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether nothing is done with what a call gives, or with the variable that it is put into, but `value.name`."""
    uses: list[ast.AST] = [call]
    target = parents[call].targets if isinstance(parents[call], ast.Assign) else []  # type: ignore[attr-defined]
    if len(target) == 1 and isinstance(target[0], ast.Name):
        named = [node for node in parents if isinstance(node, ast.Name) and node.id == target[0].id]
        uses = [node for node in named if not isinstance(node.ctx, ast.Store)]
        if any(isinstance(node, ast.Global | ast.Nonlocal) for node in parents):  # others may use it
            return False
    above = [parents[node] for node in uses]
    return all(isinstance(node, ast.Attribute) and not node.attr.startswith("__") for node in above)


@functools.cache
def syntax_of(function: types.FunctionType) -> dict[ast.AST, ast.AST] | None:
    """Parse the source of a function: every piece of syntax with the one around it; None where there is no source.

    `swap` forgets it after each network.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    return {below: node for node in ast.walk(tree) for below in ast.iter_child_nodes(node)}


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


def code_names(code: types.CodeType, children: Collection[str] = ()) -> Iterator[str]:
    """Names that code loads, but for `self.child` of the children given."""
    if not children:
        yield from code.co_names
    else:
        before = None
        for instruction in dis.get_instructions(code):
            of_self = before is not None and before.opname == "LOAD_FAST" and before.argval == "self"
            name = instruction.argval
            if isinstance(name, str) and name in code.co_names and not (of_self and name in children):
                yield name
            before = instruction
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_names(constant, children)
