"""Give one block a forward pass written from its graph; it stays the object it was, of a subclass of its class.

Names, parameters, hooks, children and `isinstance` stay. The two modes keep their own code where they differ.
The class is made from text, so copies, pickles and `torch.save` carry the text and make it again.
"""

import importlib
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

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
        passes = {training: self._compile(text) for training, text in self.texts.items()}
        forward = passes[True] if self.texts[True] == self.texts[False] else _by_mode(passes[True], passes[False])
        body = {
            "forward": forward,
            REWRITTEN: self,
            "__reduce_ex__": _reduce,
            "__module__": self.original.__module__,
            "__qualname__": self.original.__qualname__,
            "__doc__": self.original.__doc__,
        }
        return type(self.original.__name__, (self.original,), body)

    def _compile(self, text: str) -> Callable[..., Any]:
        space: dict[str, Any] = dict(self.functions)
        space.update({name: importlib.import_module(library) for name, library in self.libraries.items()})
        exec(compile(text, f"<forward of {self.original.__name__}>", "exec"), space)  # noqa: S102
        return space["forward"]


def forward_text(module: nn.Module, graphs: dict[bool, fx.Graph]) -> ForwardText:
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
    return ForwardText(original_class(module), texts, functions, libraries)


def original_class(module: nn.Module) -> type[nn.Module]:
    """Give the class of a module before any rewriting."""
    text = getattr(type(module), REWRITTEN, None)
    return text.original if isinstance(text, ForwardText) else type(module)


def current_forward(module: nn.Module) -> ForwardText | type[nn.Module]:
    """Give what `set_forward` takes to come back to the present state."""
    text = getattr(type(module), REWRITTEN, None)
    return text if isinstance(text, ForwardText) else type(module)


def set_forward(module: nn.Module, forward: ForwardText | type[nn.Module]) -> None:
    """Put the module into the class of a text, or back into its own."""
    module.__class__ = forward.make_class() if isinstance(forward, ForwardText) else forward


def _by_mode(training: Callable[..., Any], evaluation: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return training(self, *args, **kwargs) if self.training else evaluation(self, *args, **kwargs)

    forward.__signature__ = inspect.signature(training)  # type: ignore[attr-defined]
    return forward


def _rebuild(text: ForwardText) -> nn.Module:
    made = text.make_class()
    return made.__new__(made)


def _reduce(self: nn.Module, _protocol: Any) -> tuple[Any, ...]:
    return _rebuild, (getattr(type(self), REWRITTEN),), self.__getstate__()
