"""What a network calls, proven by traces: each block, each activation, how often, in training and in evaluation."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any

from torch import fx, nn

from arelu_meta.errors import InputError
from arelu_meta.surgery.activation_types import module_type, node_type, source_text
from arelu_meta.surgery.reachable_code import cannot_apply, concealment, is_torch, may_apply
from arelu_meta.surgery.tracing import TENSOR, Given, Trace, UntraceableError, arguments_of_call, trace

MODES = (True, False)  # training, evaluation


def join_path(*names: str) -> str:
    """Join paths of modules; the network's own is empty.

    >>> join_path("", "layer1", "0.relu")
    'layer1.0.relu'
    """
    return ".".join(name for name in names if name)


class UnprovedError(InputError):
    """No trace proves which activations a network, or a part of it, calls; `reason` says why in a few words."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class TracedBlock:
    """A block that runs exactly once in a forward pass, with its graphs and the calls that reach it from its parent."""

    module: nn.Module
    path: str
    trace: Trace
    parent: "TracedBlock | None" = None
    calls: dict[bool, fx.Node | None] = field(default_factory=dict)
    children: dict[tuple[bool, fx.Node], "TracedBlock"] = field(default_factory=dict)
    owns_input: bool = True  # of a block without parent: whether nobody else reads what it is given

    def __post_init__(self) -> None:
        self.modules = dict(self.module.named_modules(remove_duplicate=False))

    def nodes(self, training: bool) -> list[fx.Node]:
        """Give the nodes of one graph in the order in which they run."""
        return list(self.trace.graphs[training].nodes)


class TracedModel:
    """All blocks that run once, found by tracing level by level; refuses what no trace proves.

    A block that runs several times has no call sites of its own (two calls of it are two sites each): it is traced as
    a piece of the nearest block around it that runs once.

    Args:
        model: the network, or a part of one
        types: the activations that are looked for
        path: of the part in its network
        given: what a part's caller gives it; None: a network, called with tensors for all that has no default
    """

    def __init__(
        self, model: nn.Module, types: frozenset[str], path: str = "", given: dict[str, Given] | None = None
    ) -> None:
        self.model, self.types, self.path, self.is_part = model, types, path, given is not None
        self.runs: Counter[int] = Counter()
        self.failures: list[tuple[str, str]] = []
        self._traces: dict[tuple[Any, ...], Trace | None] = {}
        self._holds: dict[int, bool] = {}
        if given is None:
            spread = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
            parameters = list(signature(type(model).forward).parameters.values())[1:]
            given = {p.name: TENSOR for p in parameters if p.default is p.empty and p.kind not in spread}
        self._count(model, path, given)
        self._refuse_failures()
        self._inline = frozenset(key for key, runs in self.runs.items() if runs > 1 and self._holds[key])
        self.blocks: list[TracedBlock] = []
        self._collect(model, path, given, None, {})
        self._refuse_failures()
        # Calls of every module that is kept whole.
        self.layer_calls = Counter(
            id(block.modules[str(node.target)])
            for block in self.blocks
            for node in self._calls(block.trace, block.modules, lambda _: True)
        )

    def refuse(self, path: str, reason: str) -> None:
        """Raise because a block cannot be swapped in."""
        self.failures.append((path, reason))
        self._refuse_failures()

    def written_in(self, block: TracedBlock) -> list[nn.Module]:
        """List the modules that are a piece of this block's graphs, because they run several times."""
        return [child for child in block.module.modules() if id(child) in self._inline]

    def is_block(self, module: nn.Module) -> bool:
        """Tell a block with a forward of its own from torch's layers and from activations."""
        if module_type(module) is not None or concealment(module) is not None:
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
                if not cannot_apply(module, self.types):
                    self.failures.append((path, str(error)))
        return self._traces[key]

    def _calls(self, found: Trace, modules: dict[str, nn.Module], wanted: Callable[[nn.Module], bool]) -> list[fx.Node]:
        """Calls of child modules in both modes; those that only evaluation makes come last."""
        nodes: list[fx.Node] = []
        counted: Counter[int] = Counter()
        for training in MODES:
            seen: Counter[int] = Counter()
            for node in found.graphs[training].nodes:
                if node.op == "call_module" and wanted(child := modules[str(node.target)]):
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
            holds = any(node_type(node, modules) in self.types for mode in MODES for node in found.graphs[mode].nodes)
            self._check_concealed(found, modules, path)
            for node in self._calls(found, modules, self.is_block):
                child, name = modules[str(node.target)], join_path(path, str(node.target))
                try:
                    arguments = arguments_of_call(child, node.args, node.kwargs)
                except UntraceableError as error:
                    self.failures.append((name, str(error)))
                    continue
                holds |= self._count(child, name, arguments)
        self._holds[id(module)] = self._holds.get(id(module), False) or holds
        return holds

    def _check_concealed(self, found: Trace, modules: dict[str, nn.Module], path: str) -> None:
        """Note calls whose activations a trace does not see: torch's own blocks and functions that are kept whole."""
        for node in (node for graph in set(found.graphs.values()) for node in graph.nodes):
            if node.op == "call_module" and (reason := concealment(modules[str(node.target)])) is not None:
                self.failures.append((join_path(path, str(node.target)), reason))
            elif node.op == "call_function" and node_type(node, modules) is None and may_apply(node.target, self.types):
                reason = f"calls {node.name}, which applies an activation out of the trace's sight"
                self.failures.append((path, reason))

    def _collect(
        self,
        module: nn.Module,
        path: str,
        given: dict[str, Given],
        parent: TracedBlock | None,
        calls: dict[bool, fx.Node | None],
    ) -> TracedBlock | None:
        """Trace a block that runs once, with those inside that run more often, and the blocks that it calls."""
        inside = self._inline & {id(child) for child in module.modules()}
        found = self._trace(module, path, given, inside)
        if found is None:
            return None
        block = TracedBlock(module, path, found, parent, calls, owns_input=not self.is_part)
        self.blocks.append(block)
        for node in self._calls(found, block.modules, lambda child: self.is_block(child) and self.runs[id(child)] == 1):
            child = block.modules[str(node.target)]
            same = {
                mode: next((n for n in block.nodes(mode) if n.op == "call_module" and n.target == node.target), None)
                for mode in MODES
            }
            arguments = arguments_of_call(child, node.args, node.kwargs)
            inner = self._collect(child, join_path(path, str(node.target)), arguments, block, same)
            if inner is not None:
                block.children.update({(mode, call): inner for mode, call in same.items() if call is not None})
        return block

    def _refuse_failures(self) -> None:
        """Raise for the first failure, with the activations that are known without the missing proof."""
        if not self.failures:
            return
        paths = {id(module): name for name, module in self.model.named_modules()}
        listed = [
            f"{name} ({kind})"
            for name, module in self.model.named_modules()
            if (kind := module_type(module)) in self.types
        ]
        for (key, *_), found in self._traces.items():
            if found is None:
                continue
            modules = dict(self.model.get_submodule(paths[key]).named_modules(remove_duplicate=False))
            for node in found.graphs[True].nodes:
                if node.op != "call_module" and node_type(node, modules) in self.types:
                    listed.append(f"{paths[key]} ({source_text(node, modules)})")
        path, reason = self.failures[0]
        more = f" (and {len(self.failures) - 1} more such blocks)" if len(self.failures) > 1 else ""
        raise UnprovedError(
            f"cannot prove the activation calls of {type(self.model).__name__}: {path or 'its forward'} {reason}"
            f"{more}; sites found: {', '.join(listed) or 'none as modules'}",
            reason if path == self.path else f"holds {path}, which {reason}",
        )
