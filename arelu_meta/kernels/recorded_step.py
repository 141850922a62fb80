"""A training step, recorded once and replayed on other inputs of the same shapes: the same bits, in less time.

What autograd, `vmap` and Python do on the way to an operation is not repeated: for small tensors that is a fifth of the
time. The operations that compute, their order and so their results are the same, bit for bit. Views, half of all
operations, are each taken in one step and once, and what nothing depends on is left out.

The recorder is our own `TorchDispatchMode`. `make_fx(tracing_mode="real")` records the same operations with the same
bits, and its graph takes as long to replay (0.90 to 1.02 of ours), but recording takes five to six times as long:
10.7 s instead of 1.9 s with AReLU in mnist_conv, 9.4 s instead of 1.8 s with ReLU (32 episodes, 5 inner steps, one
thread of a busy machine, minima of processor time, torch 2.15; `pytest -m slow tests/kernels/test_recorded_step.py`
measures it anew on fewer). It also freezes tensors from outside, and random numbers, without a word, so the rules below
would still be needed.
"""

import operator
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate
from torch.nn.modules.module import _has_any_global_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

RECORD_AFTER = 30  # steps: recording takes as long as six to fifteen, and a replay saves about a quarter of one
RECORDINGS = 8  # kept at once; a run needs one or two
OBSTACLES = {
    torch.Tag.data_dependent_output: "it reads a number",
    torch.Tag.dynamic_output_shape: "the shape of a result depends on numbers",
    torch.Tag.nondeterministic_seeded: "it draws random numbers",
}
PURE_PACKAGES = frozenset({"arelu_meta", "builtins", "torch", "torchvision"})
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PLAIN_TYPES = (bool, float, int, str, tuple, type(None))
Step: TypeAlias = Callable[[Sequence[Tensor]], tuple[tuple[Tensor, ...], Sequence[Tensor | None]]]


class RecordedStep:
    """Add gradients to the parameters of a module, from a recording once that pays.

    Steps of other shapes, or after a change of the module or of the settings, are recorded anew. `obstacle` says why
    nothing could be recorded; `seconds` is the time that recording took so far.
    """

    def __init__(self, after: int = RECORD_AFTER) -> None:
        self.obstacle, self.seconds = "", 0.0
        self._after = after
        self._calls: Counter[Hashable] = Counter()
        self._recordings: dict[Hashable, GraphModule] = {}

    def __call__(
        self,
        step: Step,
        inputs: Sequence[Tensor],
        *,
        module: nn.Module,
        settings: tuple[object, ...] = (),
    ) -> tuple[Tensor, ...] | None:
        """Add the gradients of a step, or give None where it is to be taken as written.

        Args:
            step: computes, from `inputs` and from the parameters and buffers of `module`, what is to be given back, and
                the gradients of the parameters that it is handed.
            inputs: tensors that differ from step to step.
            module: holds all that is learned.
            settings: what else the step depends on; objects stand for themselves.

        Returns:
            The step's results without a graph, or None: before `after` steps of a kind, and after an `obstacle`.
        """
        wants_images = any(tensor.requires_grad for tensor in inputs)
        if self.obstacle or wants_images or not torch.is_grad_enabled() or not _is_pure(module):
            return None
        key = (*settings, *_fixed_by_recording(module, inputs))
        learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if key in self._recordings:
            with torch.no_grad():
                found = self._recordings[key](*inputs)
            outcome, gradients = found[: len(found) - len(learned)], found[len(found) - len(learned) :]
        elif self._calls[key] < self._after:
            self._calls[key] += 1
            return None
        else:
            start = time.monotonic()
            with Recording(inputs, (*module.parameters(), *module.buffers())) as recording:
                outcome, gradients = step(learned)
                outcome = tuple(result.detach() for result in outcome)
            graph, self.obstacle = recording.finish((*outcome, *gradients)), recording.obstacle
            if graph is not None:
                if len(self._recordings) == RECORDINGS:
                    self._recordings.clear()
                self._recordings[key] = graph
            self.seconds += time.monotonic() - start
        add_gradients(learned, gradients)
        return outcome


def add_gradients(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Add gradients to `.grad` of parameters, as `backward` does; None adds nothing."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None and parameter.grad is None:
            parameter.grad = torch.empty_like(parameter).copy_(gradient)  # the optimizer's own: no view, not shared
        elif gradient is not None and parameter.grad is not None:
            parameter.grad += gradient


class Recording(TorchDispatchMode):
    """Record what is done with `inputs` and with `lasting` tensors, which a replay reads as they then are.

    A tensor from anywhere else would be frozen as it was, so it is an `obstacle`, as are decisions that depend on
    numbers. Constants that the function creates itself are not.
    """

    def __init__(self, inputs: Sequence[Tensor], lasting: Iterable[Tensor]) -> None:
        super().__init__()
        self.obstacle = "" if len(set(map(id, inputs))) == len(inputs) else "one tensor is given twice"
        self._graph = Graph()
        self._nodes = WeakTensorKeyDictionary()
        for number, tensor in enumerate(inputs):
            self._nodes[tensor] = self._graph.placeholder(f"input_{number}")
        self._lasting = WeakTensorKeyDictionary(dict.fromkeys(lasting, True))
        self._attributes: dict[str, Tensor] = {}
        self._owners: dict[int, tuple[Node, torch.dtype]] = {}  # by address: what has computed this memory
        self._views: dict[tuple[object, ...], Node] = {}

    def __torch_dispatch__(self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and record it."""
        kwargs = kwargs or {}
        if operation is torch.ops.aten.lift_fresh.default:  # a constant written in Python: each replay has its own
            (constant,) = args
            held = self._attribute(constant.clone())  # as it is before the function can change it
            result = operation(constant)
            self._nodes[result] = self._graph.call_function(torch.ops.aten.clone.default, (held,))
            self._owners.pop(_memory(result), None)  # which was another tensor's, freed since
            return result
        for tag, obstacle in OBSTACLES.items():
            if tag in operation.tags:
                self.obstacle = self.obstacle or f"{obstacle} ({operation})"
        if operation is torch.ops.aten.as_strided.default and (*args[3:], kwargs.get("storage_offset")) != (None,):
            self.obstacle = self.obstacle or f"it reads from an offset in memory ({operation})"
        given: set[int] = set()
        map_aggregate((args, kwargs), lambda value: given.add(_memory(value)) if isinstance(value, Tensor) else None)
        recorded = map_aggregate((args, kwargs), self._node_of)
        result = operation(*args, **kwargs)
        self._name(result, self._graph.call_function(operation, *recorded), given)
        return result

    def finish(self, results: Sequence[Tensor | None]) -> GraphModule | None:
        """Give a function of the inputs that repeats all operations that matter, or None when there is an obstacle."""
        outputs = tuple(self._node_of(result) for result in results)
        if self.obstacle:
            return None
        self._graph.output(outputs)
        self._graph.eliminate_dead_code()
        return GraphModule(self._attributes, self._graph)

    def _node_of(self, value: Any) -> Any:
        """Give the node that computed a tensor; other values stand for themselves."""
        if not isinstance(value, Tensor):
            return value
        if value not in self._nodes:
            if value not in self._lasting:
                self.obstacle = self.obstacle or f"it uses a tensor {tuple(value.shape)} from outside"
            self._nodes[value] = self._attribute(value)
        return self._nodes[value]

    def _attribute(self, tensor: Tensor) -> Node:
        name = f"held_{len(self._attributes)}"
        self._attributes[name] = tensor
        return self._graph.get_attr(name)

    def _name(self, result: Any, node: Node, given: set[int]) -> None:
        """Remember which node gives the tensors of a result; `given` is the memory of the operation's arguments."""
        if isinstance(result, tuple | list):
            for number, element in enumerate(result):
                self._name(element, self._graph.call_function(operator.getitem, (node, number)), given)
        elif isinstance(result, Tensor) and result not in self._nodes:  # an operation in place gives what it was given
            memory = _memory(result)
            if memory in given or not memory:
                self._nodes[result] = self._view(result) or node
            else:
                self._nodes[result], self._owners[memory] = node, (node, result.dtype)

    def _view(self, view: Tensor) -> Node | None:
        """Take a view straight from what computed its memory: one operation however many led to it, and each once.

        None for views of inputs and of lasting tensors, which may begin elsewhere in memory next time.
        """
        owner, dtype = self._owners.get(_memory(view), (None, None))
        if owner is None or view.dtype != dtype or view.is_conj() or view.is_neg():
            return None
        place = (owner, tuple(view.shape), view.stride(), view.storage_offset())
        if place not in self._views:
            self._views[place] = self._graph.call_function(torch.as_strided, place)
        return self._views[place]


def _memory(tensor: Tensor) -> int:
    """Give the address of a tensor's memory, which views of it share; 0 for none, as of zeros that are not written."""
    return 0 if tensor._is_zerotensor() else tensor.untyped_storage().data_ptr()


def _fixed_by_recording(module: nn.Module, inputs: Sequence[Tensor]) -> tuple[object, ...]:
    """All of the module and the inputs that a recording takes for given, but for numbers.

    Objects stand for themselves, so that none can take another's place in memory.
    """
    device = inputs[0].device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    tensors = (*inputs, *module.parameters(), *module.buffers())
    return (
        autocast and torch.get_autocast_dtype(device),
        *((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in tensors),
        *((parameter, parameter.requires_grad) for parameter in module.parameters()),
        *module.buffers(),
        # The root may be a container made for the occasion.
        *(type(child) if child is module else child for child in module.modules()),
        *(
            (name, repr(value))
            for child in module.modules()
            for name, value in vars(child).items()
            if isinstance(value, PLAIN_TYPES)
        ),
    )


def _is_pure(module: nn.Module) -> bool:
    """Tell whether results depend on tensors alone: no modules of others, whose code may do anything, no hooks."""
    if _has_any_global_hook():
        return False
    for child in module.modules():
        packages = {kind.__module__.partition(".")[0] for kind in type(child).__mro__}
        if not packages <= PURE_PACKAGES or "forward" in vars(child) or any(getattr(child, hooks) for hooks in HOOKS):
            return False
    return not any(
        parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in module.parameters()
    )
