"""The operations of a function, recorded once and repeated on other inputs of the same shapes.

What autograd, vmap and Python do on the way to an operation is not repeated: for small tensors that is a good part of
the time. The operations themselves, their order and so their results are the same, bit for bit.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

OBSTACLES = {
    torch.Tag.data_dependent_output: "it looks at a number",
    torch.Tag.dynamic_output_shape: "the shape of a result depends on numbers",
    torch.Tag.nondeterministic_seeded: "it draws random numbers",
}


class Tape:
    """A recorded function: gives tensors without a graph, and None where the function gave it."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> tuple[Any, ...]:
        """Repeat all operations on these inputs."""
        results: tuple[Any, ...] = self._module(*inputs)
        return results


class Recording(TorchDispatchMode):
    """Write down what is done with `inputs` and with `lasting` tensors, which are used as they then are.

    A tensor from anywhere else would be frozen as it was, so it is an `obstacle`, as are choices that hang on numbers.
    Constants that the function makes itself are none.
    """

    def __init__(self, inputs: Sequence[Tensor], lasting: Iterable[Tensor]) -> None:
        super().__init__()
        self.obstacle = "" if len(set(map(id, inputs))) == len(inputs) else "one tensor is given twice"
        self._graph = Graph()
        self._nodes = WeakTensorKeyDictionary()
        for number, tensor in enumerate(inputs):
            self._nodes[tensor] = self._graph.placeholder(f"input_{number}")
        self._may_last = WeakTensorKeyDictionary(dict.fromkeys(lasting, True))
        self._held: dict[str, Tensor] = {}

    def __torch_dispatch__(self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do it and write it down."""
        kwargs = kwargs or {}
        if operation is torch.ops.aten.lift_fresh.default:  # a constant written in Python: each repetition has its own
            (constant,) = args
            held = self._hold(constant.clone())  # as it is before the function can change it
            result = operation(constant)
            self._nodes[result] = self._graph.call_function(torch.ops.aten.clone.default, (held,))
            return result
        for tag, obstacle in OBSTACLES.items():
            if tag in operation.tags:
                self.obstacle = self.obstacle or f"{obstacle} ({operation})"
        if operation is torch.ops.aten.as_strided.default and (*args[3:], kwargs.get("storage_offset")) != (None,):
            self.obstacle = self.obstacle or f"it reads from a place in memory ({operation})"
        written = tree_map_only(Tensor, self._node, (args, kwargs))
        result = operation(*args, **kwargs)
        self._keep(result, self._graph.call_function(operation, *written))
        return result

    def tape(self, results: Sequence[Tensor | None]) -> "Tape | None":
        """Close the recording with what the function gives; there is no tape when there is an obstacle."""
        given = tuple(result if result is None else self._node(result) for result in results)
        if self.obstacle:
            return None
        self._graph.output(given)
        return Tape(GraphModule(self._held, self._graph))

    def _node(self, tensor: Tensor) -> Node:
        node: Node | None = self._nodes.get(tensor)
        if node is None:
            if tensor not in self._may_last:
                self.obstacle = self.obstacle or f"it uses a tensor {tuple(tensor.shape)} from outside"
            node = self._nodes[tensor] = self._hold(tensor)
        return node

    def _hold(self, tensor: Tensor) -> Node:
        name = f"held_{len(self._held)}"
        self._held[name] = tensor
        return self._graph.get_attr(name)

    def _keep(self, result: Any, node: Node) -> None:
        if isinstance(result, Tensor):
            if result not in self._nodes:  # an operation in place gives what it was given
                self._nodes[result] = node
        elif isinstance(result, tuple | list):
            for number, part in enumerate(result):
                self._keep(part, self._graph.call_function(operator.getitem, (node, number)))
