"""Call sites of activations: where each is, what it is called, and how it can be replaced."""

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from arelu_meta.surgery.activation_types import node_type
from arelu_meta.surgery.traced_model import MODES, TracedBlock, TracedModel, join_path

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# What gives a new tensor whatever it is given; all else may give a view of its input, or the input itself.
_FRESH_LAYERS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.LayerNorm, nn.GroupNorm, nn.MaxPool2d),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)
_FRESH_FUNCTIONS: set[Callable[..., Any]] = {
    *(operator.add, operator.mul, operator.sub, torch.add, torch.mul, torch.cat),
    *(F.batch_norm, F.conv2d, F.group_norm, F.layer_norm, F.linear),
}


@dataclass
class CallSite:
    """One call of an activation in the forward pass: its place in the graphs of the block that holds it."""

    block: TracedBlock
    nodes: dict[bool, fx.Node | None]
    node: fx.Node  # the call, in the training graph where it is there
    module: nn.Module | None  # the old one; None for a call of a function or method
    activation: str  # its name, as in `activation_types`
    home: str  # the module, relative to the block, that the new activation becomes a child of
    leaf: str
    target: str  # path of the new activation inside the block
    name: str  # and in the network
    slot: tuple[Any, ...]  # the attribute that holds the old module
    calls: int  # of the old module, in one forward pass
    by_module: bool  # replacing the module is the same as replacing the call
    overwrites: bool  # the old activation overwrites a tensor that is read again


def call_sites(model: TracedModel) -> list[CallSite]:
    """List every call site of the types asked for, in the order of the blocks."""
    paired = [(block, nodes) for block in model.blocks for nodes in _in_both_modes(model, block)]
    slots = Counter(_slot(block, _either(nodes)) for block, nodes in paired)
    taken: set[tuple[int, str]] = set()
    sites = []
    for block, nodes in paired:
        node = _either(nodes)
        activation = str(node_type(node, block.modules))
        module = block.modules[str(node.target)] if node.op == "call_module" else None
        overwrites = any(_overwrites(block, training, call) for training, call in nodes.items() if call is not None)
        # The trace can have meant no other attribute; a plain nn.Sequential is read place by place.
        one_path = sum(other is module for other in block.modules.values()) == 1
        one_path |= type(block.module).forward is nn.Sequential.forward
        single = module is not None and slots[_slot(block, node)] == 1 and one_path
        home, leaf = _choose_path(block, node, taken, activation)
        sites.append(
            CallSite(
                block=block,
                nodes=nodes,
                node=node,
                module=module,
                activation=activation,
                home=home,
                leaf=leaf,
                target=join_path(home, leaf),
                name=join_path(block.path, home, leaf),
                slot=_slot(block, node),
                calls=1 if module is None else model.layer_calls[id(module)],
                by_module=single and not overwrites,
                overwrites=overwrites,
            )
        )
    return sites


def input_node(node: fx.Node) -> fx.Node:
    """Give the call whose result an activation is applied to."""
    value = node.args[0] if node.args else node.kwargs["input"]
    assert isinstance(value, fx.Node)  # noqa: S101  (for the type checker)
    return value


def _in_both_modes(model: TracedModel, block: TracedBlock) -> list[dict[bool, fx.Node | None]]:
    """Match the sites of the training graph with those of the evaluation graph: the n-th call of each target."""
    calls: dict[bool, dict[Any, list[fx.Node]]] = {True: {}, False: {}}
    for training in MODES:
        for node in block.nodes(training):
            if node_type(node, block.modules) in model.types:
                calls[training].setdefault((node.op, node.target), []).append(node)
    pairs: list[dict[bool, fx.Node | None]] = []
    for target, nodes in calls[True].items():
        evaluated: Sequence[fx.Node | None] = calls[False].get(target) or [None] * len(nodes)
        if len(evaluated) != len(nodes):
            reason = f"calls {target[1]} {len(nodes)} times in training, {len(evaluated)} in evaluation"
            model.refuse(block.path, reason)
        pairs += [{True: node, False: same} for node, same in zip(nodes, evaluated, strict=True)]
    order = {node: index for index, node in enumerate(block.nodes(True))}
    pairs.sort(key=lambda pair: order[_either(pair)])
    alone = [node for target, nodes in calls[False].items() if target not in calls[True] for node in nodes]
    return pairs + [{True: None, False: node} for node in alone]


def _either(nodes: dict[bool, fx.Node | None]) -> fx.Node:
    node = nodes[True] or nodes[False]
    assert node is not None  # noqa: S101  (for the type checker)
    return node


def _slot(block: TracedBlock, node: fx.Node) -> tuple[Any, ...]:
    """Name the attribute that holds the called module; a function call is its own."""
    if node.op != "call_module":
        return id(node), "", ""
    home, _, leaf = str(node.target).rpartition(".")
    return id(block.modules[home]), leaf, "module"


def _choose_path(block: TracedBlock, node: fx.Node, taken: set[tuple[int, str]], activation: str) -> tuple[str, str]:
    """Choose where the new activation lives: `relu` for the first call of a module, `relu_2` for the next, ..."""
    if node.op == "call_module":
        home, _, leaf = str(node.target).rpartition(".")
        if (id(block.modules[home]), leaf) not in taken:
            taken.add((id(block.modules[home]), leaf))
            return home, leaf
    else:  # named after its function
        stack = list((node.meta.get("nn_module_stack") or {"": ("", None)}).values())
        home, leaf = str(stack[-1][0]), activation.removesuffix("_tanh")
    if home and isinstance(block.modules[home], _CONTAINERS):  # another child would become one more layer
        home, leaf = "", f"{home}_{leaf}".replace(".", "_")
    holder = block.modules[home]
    for number in count(1):
        name = leaf if number == 1 else f"{leaf}_{number}"
        if not hasattr(holder, name) and (id(holder), name) not in taken:
            taken.add((id(holder), name))
            return home, name
    raise AssertionError


def _overwrites(block: TracedBlock, training: bool, node: fx.Node) -> bool:
    """Tell whether an activation overwrites its input, and somebody else may read that."""
    if node.op == "call_module":
        in_place = bool(getattr(block.modules[str(node.target)], "inplace", False))
    else:
        name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
        in_place = name.endswith("_") or bool(node.kwargs.get("inplace"))
    return in_place and not _read_by_it_alone(block, training, input_node(node), node)


def _read_by_it_alone(block: TracedBlock, training: bool, node: fx.Node, reader: fx.Node) -> bool:
    """Prove that nobody but `reader` reads the tensor of `node`, or any tensor that may share its memory."""
    if set(node.users) != {reader} or node.op == "get_attr":
        return False
    if node.op == "placeholder":
        if block.parent is None:
            return block.owns_input
        call = block.calls[training]
        arguments = [] if call is None else call.all_input_nodes
        return call is not None and all(_read_by_it_alone(block.parent, training, given, call) for given in arguments)
    if node.op == "call_module" and isinstance(block.modules[str(node.target)], _FRESH_LAYERS):
        return True
    if node.op == "call_function" and node.target in _FRESH_FUNCTIONS:
        return True
    if node.op == "call_function" and node.target in (operator.iadd, operator.imul):
        first = node.args[0]
        return isinstance(first, fx.Node) and _read_by_it_alone(block, training, first, node)
    return all(_read_by_it_alone(block, training, given, node) for given in node.all_input_nodes)
