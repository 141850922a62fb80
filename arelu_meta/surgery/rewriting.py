"""Give one block a forward pass written from its graph; it stays the object it was, of a subclass of its class.

Names, parameters, hooks, children and `isinstance` stay. The two modes keep their own code where they differ.
The class is made from text, so copies, pickles and `torch.save` carry the text and make it again.
"""

import hashlib
import importlib
import inspect
import linecache
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from arelu_meta.surgery.sites import CallSite, input_node
from arelu_meta.surgery.traced_model import MODES, TracedBlock

REWRITTEN = "_rewritten_forward"


@dataclass(frozen=True)
class ForwardText:
    """A forward pass as text, one per mode (True: training), the names it uses, and the class it belongs to."""

    original: type[nn.Module]
    texts: dict[bool, str]
    functions: dict[str, Any]
    libraries: dict[str, str]

    def make_class(self) -> type[nn.Module]:
        """Make the class: `forward` takes the text of the current mode."""
        passes = {}
        for training, text in self.texts.items():
            space: dict[str, Any] = dict(self.functions)
            space.update({name: importlib.import_module(library) for name, library in self.libraries.items()})
            file = f"<forward of {self.original.__name__} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
            # Tracebacks and TorchScript read the text here; no time of change: it is never taken for outdated.
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            exec(compile(text, file, "exec"), space)  # noqa: S102  (text made here, of a network in memory)
            passes[training] = space["forward"]

        def by_mode(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return passes[self.training](self, *args, **kwargs)

        by_mode.__signature__ = inspect.signature(passes[True])  # type: ignore[attr-defined]
        body = {
            "forward": passes[True] if self.texts[True] == self.texts[False] else by_mode,
            REWRITTEN: self,
            "__reduce_ex__": lambda module, _protocol: (_rebuild, (self,), module.__getstate__()),
            "__module__": self.original.__module__,
            "__qualname__": self.original.__qualname__,
            "__doc__": self.original.__doc__,
        }
        return type(self.original.__name__, (self.original,), body)


def current_forward(module: nn.Module) -> ForwardText | type[nn.Module]:
    """Give the text that the class of a module is made from, or the class itself."""
    text = getattr(type(module), REWRITTEN, None)
    return text if isinstance(text, ForwardText) else type(module)


def rewrite_block(block: TracedBlock, sites: Sequence[CallSite], chosen: Sequence[CallSite]) -> None:
    """Write the block's forward pass anew, with the calls of its sites going to modules of their own."""
    graphs = {}
    for training in MODES:
        graphs[training] = graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        graph.output(graph.graph_copy(block.trace.graphs[training], copies))
        for site in (site for site in sites if site.block is block):
            node = site.nodes[training]
            if node is not None and any(site is other for other in chosen):
                _redirect(graph, copies[node], site)
            elif node is not None and node.op == "call_module":
                copies[node].target = site.target
    block.module.__class__ = _forward_text(block.module, graphs).make_class()


def _redirect(graph: fx.Graph, node: fx.Node, site: CallSite) -> None:
    """Let a call go to the site's module; what the old activation overwrote is overwritten still."""
    value = input_node(node)
    with graph.inserting_before(node):
        if site.overwrites:
            result = graph.call_module(site.target, (graph.call_method("clone", (value,)),))
            result = graph.call_method("copy_", (value, result))
        else:
            result = graph.call_module(site.target, (value,))
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _forward_text(module: nn.Module, graphs: dict[bool, fx.Graph]) -> ForwardText:
    """Write the graphs as Python."""
    texts: dict[bool, str] = {}
    names: dict[str, Any] = {}
    for training, graph in graphs.items():
        code = graph.python_code(root_module="self")
        names.update(code.globals)
        # `wrap` only matters to a trace, and a further trace finds the functions wrapped where they are defined.
        texts[training] = "\n".join(line for line in code.src.splitlines() if not line.startswith("torch.fx.wrap("))
    libraries = {name: value.__name__ for name, value in names.items() if isinstance(value, types.ModuleType)}
    functions = {name: value for name, value in names.items() if name not in libraries and name != "__builtins__"}
    before = current_forward(module)
    return ForwardText(before.original if isinstance(before, ForwardText) else before, texts, functions, libraries)


def _rebuild(text: ForwardText) -> nn.Module:
    made = text.make_class()
    return made.__new__(made)
