"""What the source of code that no trace follows does with the modules below it, and with its arguments.

A part is proved as a call of its `forward`. Code around it may call something inside it as well (`self.part.act`),
take it to pieces (`for layer in self.part`), or hand it on; all that can be read from the source, and nothing of it
from a trace. What has no source may do anything.
"""

import ast
import inspect
import types

from torch import nn

from arelu_meta.kernels.module_internals import CHILDREN
from arelu_meta.surgery.reachable_code import code_names, from_torch, functions_of, syntax_of

ANYTHING = "*"  # in place of names: whatever there is
# By these, code reaches modules without their names.
DYNAMIC = ("children", "modules", "named_children", "named_modules", "get_submodule", "getattr", "vars", CHILDREN)
_REPEATED = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def calls_once(module: nn.Module, child: str) -> bool:
    """Tell whether one call of the module calls `self.child` once at most, at one place of its source.

    No loop is around the call, no other code of the class uses the name, and `self` goes nowhere else.
    """
    if "forward" in vars(module):  # of the instance, not that of the source
        return False
    forward = inspect.unwrap(type(module).forward)
    others = [function for function in functions_of(module) if function is not forward]
    if any({child, *DYNAMIC} & set(code_names(function.__code__)) for function in others):
        return False
    parents = syntax_of(forward)
    if parents is None:
        return False
    named = [node for node in parents if isinstance(node, ast.Name) and node.id in ("self", *DYNAMIC)]
    uses = [node for node in parents if isinstance(node, ast.Attribute) and node.attr in (child, *DYNAMIC)]
    uses = [node for node in uses if not _asks_for_none(parents[node])]
    if not all(isinstance(parents[node], ast.Attribute) for node in named) or len(uses) != 1:
        return False
    around: list[ast.AST] = [uses[0]]
    while around[-1] in parents:
        around.append(parents[around[-1]])
    call = around[1]
    at_one_place = isinstance(call, ast.Call) and call.func is uses[0] and ast.unparse(uses[0]) == f"self.{child}"
    inside_functions = sum(isinstance(node, ast.FunctionDef) for node in around)
    return at_one_place and inside_functions == 1 and not any(isinstance(node, _REPEATED) for node in around)


def uses_of(module: nn.Module, child: str, depth: int) -> list[str]:
    """Say what code does with `self.child`, or with the modules `depth` lists below it: called, indexed, or other.

    One word for each place; none where it is reached without its name.
    """
    found: list[str] = ["other"] if "forward" in vars(module) else []
    for function in functions_of(module):
        parents = syntax_of(function)
        if parents is None:
            found.append("other")
            continue
        held: list[tuple[ast.AST, int]]
        held = [(node, depth) for node in parents if isinstance(node, ast.Attribute) and _is_of_self(node, child)]
        while held:
            node, level = held.pop()
            above = parents[node]
            by_name = isinstance(above, ast.Attribute) and above.attr in ("__call__", "forward")
            if by_name or (isinstance(above, ast.Call) and above.func is node):
                found.append("called")
            elif isinstance(above, ast.Subscript) and above.value is node and level:
                held.append((above, level if isinstance(above.slice, ast.Slice) else level - 1))
            elif level and (elements := _elements(node, parents)) is not None:
                held += [(element, level - 1) for element in elements]
            elif not isinstance(above, ast.Attribute) and not _asks_for_none(above):  # see `names_inside`
                found.append("indexed" if isinstance(above, ast.Subscript) else "other")
    return found


def names_inside(module: nn.Module) -> set[str]:
    """Names of attributes that the code of a module takes of other objects than `self`: act of `self.part.act`."""
    found: set[str] = {ANYTHING} if "forward" in vars(module) else set()
    for function in functions_of(module):
        nodes = syntax_of(function)
        for node in nodes or ():
            if isinstance(node, ast.Attribute) and node.attr in DYNAMIC:
                found.add(ANYTHING)
            elif isinstance(node, ast.Attribute) and not _of_self_or_library(node.value, function):
                found.add(node.attr)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                taken, name = node.args[:2]
                if not _of_self_or_library(taken, function):
                    found.add(str(name.value) if isinstance(name, ast.Constant) else ANYTHING)
        found |= {ANYTHING} if nodes is None else set()
    return found


def compared_by_identity(module: nn.Module) -> set[str]:
    """Names that the code of a module and of those below asks `is None` of, which no trace sees.

    ANYTHING stands for items, attributes of others than `self`, and comparisons with something else than None.
    """
    found: set[str] = set()
    blocks = {type(child): child for child in module.modules() if not from_torch(type(child))}
    for function in {function for block in blocks.values() for function in functions_of(block)}:
        nodes = syntax_of(function)
        for node in nodes or ():
            if not isinstance(node, ast.Compare) or not any(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops):
                continue
            (other,) = node.comparators[:1]
            if isinstance(node.left, ast.Attribute) and _is_of_self(node.left, node.left.attr):
                continue
            if isinstance(node.left, ast.Name):
                found.add(node.left.id)
            if not (isinstance(node.left, ast.Name) and isinstance(other, ast.Constant) and other.value is None):
                found.add(ANYTHING)
    return found


def _elements(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> list[ast.AST] | None:
    """Find where the elements of a list are used that a loop goes through; None: no loop does."""
    loop, position = parents[node], None
    if isinstance(loop, ast.Call) and isinstance(loop.func, ast.Name) and node in loop.args:
        if loop.func.id == "len":
            return []
        places = {"enumerate": 1, "zip": loop.args.index(node)}
        node, position = loop, places.get(loop.func.id)
        loop = parents[node] if position is not None or loop.func.id == "reversed" else node
    if not isinstance(loop, (ast.For, ast.comprehension)) or loop.iter is not node:
        return None
    target = loop.target
    if position is not None:
        target = target.elts[position] if isinstance(target, ast.Tuple) else target
    if not isinstance(target, ast.Name):
        return None
    loads = [name for name in parents if isinstance(name, ast.Name) and name.id == target.id]
    return [name for name in loads if isinstance(name.ctx, ast.Load)]


def _is_of_self(node: ast.Attribute, name: str) -> bool:
    return node.attr == name and isinstance(node.value, ast.Name) and node.value.id == "self"


def _of_self_or_library(node: ast.expr, function: types.FunctionType) -> bool:
    """Tell `self.` and `torch.nn.functional.` from another object that an attribute is taken of."""
    if isinstance(node, ast.Name) and node.id == "self":
        return True
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and isinstance(function.__globals__.get(node.id), types.ModuleType)


def _asks_for_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and all(isinstance(operation, (ast.Is, ast.IsNot)) for operation in node.ops)
