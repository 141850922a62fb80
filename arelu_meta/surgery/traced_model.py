"""What a network calls, proven by traces: each block, each activation, how often, in training and in evaluation."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx, nn

from arelu_meta.errors import InputError
from arelu_meta.surgery.absence import applies_none, conceals, function_mentions, is_torch
from arelu_meta.surgery.kinds import module_kind, node_kind, old_name
from arelu_meta.surgery.tracing import Given, Trace, UntraceableError, arguments_of_call, required_arguments, trace

MODES = (True, False)  # training, evaluation


@dataclass
class Part:
    """A block that runs exactly once in a forward pass, with its graphs and the calls that reach it from its parent."""

    module: nn.Module
    path: str
    trace: Trace
    parent: "Part | None" = None
    calls: dict[bool, fx.Node | None] = field(default_factory=dict)
    children: dict[tuple[bool, fx.Node], "Part"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.modules = dict(self.module.named_modules(remove_duplicate=False))

    def placeholder(self, training: bool, argument: int) -> fx.Node:
        """Find the node that an argument of the call arrives at."""
        nodes = [node for node in self.trace.graphs[training].nodes if node.op == "placeholder"]
        return nodes[argument]

    def nodes(self, training: bool) -> Iterator[fx.Node]:
        """Give the nodes of one graph in the order in which they run."""
        return iter(self.trace.graphs[training].nodes)


class Network:
    """All blocks that run once, found by tracing level by level; refuses what no trace proves.

    A block that runs several times has no call sites of its own (two calls of it are two sites each): it is traced as
    a piece of the nearest block around it that runs once.
    """

    def __init__(self, model: nn.Module, kinds: frozenset[str]) -> None:
        self.model, self.kinds = model, kinds
        self.runs: Counter[int] = Counter()
        self.failures: list[tuple[str, str]] = []
        self._traces: dict[tuple[Any, ...], Trace | None] = {}
        self._holds: dict[int, bool] = {}
        given = required_arguments(model)
        self._count(model, "", given)
        self._refuse_failures()
        self._inline = frozenset(key for key, runs in self.runs.items() if runs > 1 and self._holds[key])
        self.parts: list[Part] = []
        self._collect(model, "", given, None, {})
        self._refuse_failures()
        self.layer_calls = self._count_layers()

    def refuse(self, path: str, reason: str) -> None:
        """Note that a block cannot be swapped in."""
        self.failures.append((path, reason))
        self._refuse_failures()

    def is_block(self, module: nn.Module) -> bool:
        """Tell a block with a forward of its own from torch's layers and from activations."""
        if module_kind(module) is not None:
            return False
        return type(module).forward is nn.Sequential.forward or not is_torch(type(module))

    def _trace(self, module: nn.Module, path: str, given: dict[str, Given], inline: frozenset[int]) -> Trace | None:
        """Trace a block once; None for one that cannot be traced but provably applies no activation."""
        key = (id(module), repr(given), inline)
        if key not in self._traces:
            try:
                self._traces[key] = trace(module, given, inline)
            except UntraceableError as error:
                self._traces[key] = None
                if not applies_none(module, self.kinds):
                    self.failures.append((path, str(error)))
        return self._traces[key]

    def _calls(self, found: Trace, modules: dict[str, nn.Module], kind: Callable[[nn.Module], bool]) -> list[fx.Node]:
        """Calls of child modules in both modes; those that only evaluation makes come last."""
        nodes: list[fx.Node] = []
        counted: Counter[int] = Counter()
        for training in MODES:
            seen: Counter[int] = Counter()
            for node in found.graphs[training].nodes:
                if node.op == "call_module" and kind(child := modules[str(node.target)]):
                    seen[id(child)] += 1
                    if seen[id(child)] > counted[id(child)]:
                        nodes.append(node)
            counted |= seen
        return nodes

    def _count(self, module: nn.Module, path: str, given: dict[str, Given]) -> bool:
        """Count how often each block runs; tell whether this one holds activations."""
        self.runs[id(module)] += 1
        found = self._trace(module, path, given, frozenset())
        holds = False
        if found is not None:
            modules = dict(module.named_modules(remove_duplicate=False))
            holds = any(node_kind(node, modules) in self.kinds for mode in MODES for node in found.graphs[mode].nodes)
            self._check_concealed(found, modules, path)
            for node in self._calls(found, modules, self.is_block):
                child, name = modules[str(node.target)], _join(path, str(node.target))
                try:
                    arguments = arguments_of_call(child, node.args, node.kwargs)
                except UntraceableError as error:
                    self.failures.append((name, str(error)))
                    continue
                holds |= self._count(child, name, arguments)
        self._holds[id(module)] = self._holds.get(id(module), False) or holds
        return holds

    def _check_concealed(self, found: Trace, modules: dict[str, nn.Module], path: str) -> None:
        for graph in set(found.graphs.values()):
            for node in graph.nodes:
                if node.op == "call_module" and conceals(modules[str(node.target)]):
                    kind = type(modules[str(node.target)]).__name__
                    self.failures.append(
                        (_join(path, str(node.target)), f"applies its activation inside torch's {kind}")
                    )
                if (
                    node.op == "call_function"
                    and node_kind(node, modules) is None
                    and function_mentions(node.target, self.kinds)
                ):
                    self.failures.append(
                        (path, f"calls {node.name}, which applies an activation out of the trace's sight")
                    )

    def _collect(
        self,
        module: nn.Module,
        path: str,
        given: dict[str, Given],
        parent: Part | None,
        calls: dict[bool, fx.Node | None],
    ) -> Part | None:
        inside = self._inline & {id(child) for child in module.modules()}
        found = self._trace(module, path, given, inside)
        if found is None:
            return None
        part = Part(module, path, found, parent, calls)
        self.parts.append(part)
        for node in self._calls(found, part.modules, lambda child: self.is_block(child) and self.runs[id(child)] == 1):
            child = part.modules[str(node.target)]
            same = {
                mode: next((n for n in part.nodes(mode) if n.op == "call_module" and n.target == node.target), None)
                for mode in MODES
            }
            arguments = arguments_of_call(child, node.args, node.kwargs)
            inner = self._collect(child, _join(path, str(node.target)), arguments, part, same)
            if inner is not None:
                part.children.update({(mode, call): inner for mode, call in same.items() if call is not None})
        return part

    def _count_layers(self) -> Counter[int]:
        """Count the calls of every module that is kept whole."""
        calls: Counter[int] = Counter()
        for part in self.parts:
            for node in self._calls(part.trace, part.modules, lambda _: True):
                calls[id(part.modules[str(node.target)])] += 1
        return calls

    def _refuse_failures(self) -> None:
        if not self.failures:
            return
        path, reason = self.failures[0]
        more = f" (and {len(self.failures) - 1} more such blocks)" if len(self.failures) > 1 else ""
        listed = ", ".join(self.known_sites()) or "none as modules"
        name, place = type(self.model).__name__, path or "its forward"
        raise InputError(f"cannot prove the activation calls of {name}: {place} {reason}{more}; sites found: {listed}")

    def known_sites(self) -> list[str]:
        """List activations as far as they are known without the missing proof: modules, and calls in traced blocks."""
        names = [
            f"{name} ({kind})"
            for name, module in self.model.named_modules()
            if (kind := module_kind(module)) in self.kinds
        ]
        paths = {id(module): name for name, module in self.model.named_modules()}
        for (key, *_), found in self._traces.items():
            if found is None:
                continue
            modules = dict(self.model.get_submodule(paths[key]).named_modules(remove_duplicate=False))
            for node in found.graphs[True].nodes:
                if node.op != "call_module" and node_kind(node, modules) in self.kinds:
                    names.append(f"{paths[key]} ({old_name(node, modules)})")
        return names


def _join(*names: str) -> str:
    return ".".join(name for name in names if name)
