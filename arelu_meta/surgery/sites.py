"""Call sites of activations: where each is, what it is called, and how it can be replaced."""

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from arelu_meta.surgery.kinds import is_in_place, node_kind, old_name
from arelu_meta.surgery.network import MODES, Network, Part

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# What gives a new tensor whatever it is given; all else may give a view of its input, or the input itself.
_FRESH_LAYERS = (
    nn.modules.conv._ConvNd,
    nn.Linear,
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.MaxPool2d,
)
_FRESH_FUNCTIONS: set[Callable[..., Any]] = {
    operator.add,
    operator.mul,
    operator.sub,
    torch.add,
    torch.mul,
    torch.cat,
    F.batch_norm,
    F.conv2d,
    F.group_norm,
    F.layer_norm,
    F.linear,
}


@dataclass
class CallSite:
    """One call of an activation in the forward pass: its place in the graphs of the block that holds it."""

    part: Part
    nodes: dict[bool, fx.Node | None]
    kind: str
    home: str  # the module, relative to the part, that the new activation becomes a child of
    leaf: str
    slot: tuple[Any, ...]  # the attribute that holds the old module
    calls: int  # of the old module, in one forward pass
    by_module: bool  # replacing the module is the same as replacing the call
    overwrites: bool  # the old activation overwrites a tensor that is read again

    @property
    def node(self) -> fx.Node:
        """The call, in the training graph where it is there."""
        node = self.nodes[True] or self.nodes[False]
        assert node is not None  # noqa: S101
        return node

    @property
    def target(self) -> str:
        """Path of the new activation inside the part."""
        return f"{self.home}.{self.leaf}" if self.home else self.leaf

    @property
    def name(self) -> str:
        """Path of the new activation in the network."""
        return f"{self.part.path}.{self.target}" if self.part.path else self.target

    @property
    def old(self) -> str:
        """The old call as the source has it."""
        return old_name(self.node, self.part.modules)


def call_sites(network: Network) -> list[CallSite]:
    """List every call site of the kinds asked for, in the order of the blocks."""
    paired = [(part, pair) for part in network.parts for pair in _pairs(network, part)]
    slots = Counter(_slot(part, _either(pair)) for part, pair in paired)
    taken: set[tuple[int, str]] = set()
    sites = []
    for part, pair in paired:
        node = _either(pair)
        module = part.modules[str(node.target)] if node.op == "call_module" else None
        overwrites = any(
            found is not None
            and is_in_place(found, part.modules)
            and not _read_by_it_alone(part, training, _input(found), found)
            for training, found in pair.items()
        )
        single = module is not None and slots[_slot(part, node)] == 1 and _has_one_path(part, module)
        home, leaf = _place(part, node, taken, node_kind(node, part.modules) or "activation")
        sites.append(
            CallSite(
                part=part,
                nodes=pair,
                kind=str(node_kind(node, part.modules)),
                home=home,
                leaf=leaf,
                slot=_slot(part, node),
                calls=1 if module is None else network.layer_calls[id(module)],
                by_module=single and not overwrites,
                overwrites=overwrites,
            )
        )
    return sites


def _pairs(network: Network, part: Part) -> Iterator[dict[bool, fx.Node | None]]:
    """Match the sites of the training graph with those of the evaluation graph: the n-th call of each target."""
    found: dict[bool, dict[Any, list[fx.Node]]] = {}
    for training in MODES:
        by_target: dict[Any, list[fx.Node]] = {}
        for node in part.nodes(training):
            if node_kind(node, part.modules) in network.kinds:
                by_target.setdefault((node.op, node.target), []).append(node)
        found[training] = by_target
    for target, nodes in found[True].items():
        other = found[False].get(target, [])
        if other and len(other) != len(nodes):
            reason = f"calls {target[1]} {len(nodes)} times in training, {len(other)} in evaluation"
            network.refuse(part.path, reason)
    order = {node: index for index, node in enumerate(part.nodes(True))}
    pairs: list[dict[bool, fx.Node | None]] = []
    for target, nodes in found[True].items():
        evaluated: Sequence[fx.Node | None] = found[False].get(target) or [None] * len(nodes)
        pairs += [{True: node, False: same} for node, same in zip(nodes, evaluated, strict=True)]
    pairs.sort(key=lambda pair: order[_either(pair)])
    alone = [node for target, nodes in found[False].items() if target not in found[True] for node in nodes]
    yield from pairs
    yield from ({True: None, False: node} for node in alone)


def _either(pair: dict[bool, fx.Node | None]) -> fx.Node:
    node = pair[True] or pair[False]
    assert node is not None  # noqa: S101
    return node


def _slot(part: Part, node: fx.Node) -> tuple[Any, ...]:
    """Name the attribute that holds the called module; a function call is its own."""
    if node.op != "call_module":
        return id(node), "", ""
    home, _, leaf = str(node.target).rpartition(".")
    return id(part.modules[home]), leaf, "module"


def _has_one_path(part: Part, module: nn.Module) -> bool:
    """Tell whether the trace can have meant no other attribute; a plain nn.Sequential is read place by place."""
    if type(part.module).forward is nn.Sequential.forward:
        return True
    return sum(found is module for found in part.modules.values()) == 1


def _place(part: Part, node: fx.Node, taken: set[tuple[int, str]], kind: str) -> tuple[str, str]:
    """Choose where the new activation lives: `relu` for the first call of a module, `relu_2` for the next, ..."""
    if node.op == "call_module":
        home, _, leaf = str(node.target).rpartition(".")
        if (id(part.modules[home]), leaf) not in taken:
            taken.add((id(part.modules[home]), leaf))
            return home, leaf
    else:
        stack = list((node.meta.get("nn_module_stack") or {"": ("", None)}).values())
        home, leaf = str(stack[-1][0]), kind
    if home and isinstance(part.modules[home], _CONTAINERS):  # another child would become one more layer
        home, leaf = "", f"{home}_{leaf}".replace(".", "_")
    holder = part.modules[home]
    for number in count(1):
        name = leaf if number == 1 else f"{leaf}_{number}"
        if not hasattr(holder, name) and (id(holder), name) not in taken:
            taken.add((id(holder), name))
            return home, name
    raise AssertionError


def _input(node: fx.Node) -> fx.Node:
    value = node.args[0] if node.args else node.kwargs["input"]
    assert isinstance(value, fx.Node)  # noqa: S101
    return value


def _read_by_it_alone(part: Part, training: bool, node: fx.Node, reader: fx.Node) -> bool:
    """Prove that nobody but `reader` reads the tensor of `node`, or any tensor that may share its memory."""
    if set(node.users) != {reader} or node.op == "get_attr":
        return False
    if node.op == "placeholder":
        if part.parent is None:
            return True
        call = part.calls[training]
        arguments = [] if call is None else call.all_input_nodes
        return call is not None and all(_read_by_it_alone(part.parent, training, given, call) for given in arguments)
    if node.op == "call_module" and isinstance(part.modules[str(node.target)], _FRESH_LAYERS):
        return True
    if node.op == "call_function" and node.target in _FRESH_FUNCTIONS:
        return True
    if node.op == "call_function" and node.target in (operator.iadd, operator.imul):
        first = node.args[0]
        return isinstance(first, fx.Node) and _read_by_it_alone(part, training, first, node)
    return all(_read_by_it_alone(part, training, given, node) for given in node.all_input_nodes)
