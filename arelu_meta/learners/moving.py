"""Which parameters adapt inside an episode: all, some by name, the head, or all but the head."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from arelu_meta.errors import InputError, unknown
from arelu_meta.learners.functional_network import FunctionalNetwork

Part = Literal["head", "body"]


def moving_names(network: nn.Module, patterns: Iterable[str] | None) -> frozenset[str] | None:
    """Names of the parameters that adapt; what the user froze (`requires_grad`) does not.

    Args:
        network: the network.
        patterns: names, or patterns such as `blocks.*` and `*.bias`; None: all.

    Returns:
        The names; None where that is every parameter because none was chosen.

    Raises:
        InputError: a name that no parameter has, or a pattern that none fits.

    >>> sorted(moving_names(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), ["0.bias", "1.*"]))
    ['0.bias', '1.bias', '1.weight']
    """
    free = frozenset(name for name, parameter in network.named_parameters() if parameter.requires_grad)
    names = [name for name, _ in network.named_parameters()]
    if patterns is None:
        return None if len(free) == len(names) else free
    chosen: set[str] = set()
    for pattern in patterns:
        fitting = [name for name in names if fnmatchcase(name, pattern)]
        if not fitting:
            raise unknown("parameter in `moving`:", pattern, names)
        chosen.update(fitting)
    return free & chosen


def parameters_of(network: nn.Module, layer: str) -> frozenset[str]:
    """Names of the parameters of a layer, or of a block of layers, by its path.

    Raises:
        InputError: there is none of that path, or it has no parameters.

    >>> sorted(parameters_of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), "1"))
    ['1.bias', '1.weight']
    """
    names = [name for name, _ in network.named_parameters()]
    inside = frozenset(name for name in names if name.startswith(f"{layer}."))
    if not inside:
        raise unknown("layer in `head`:", layer, {_owner(name) for name in names})
    return inside


def head_parameters(network: nn.Module, x: Tensor) -> frozenset[str]:
    """Names of the parameters of the head: the last linear layer on the way to the logits.

    It is found by what the forward pass does, whatever the layers are called and in whatever order they were made:
    going back from the logits, the first operation that joins what comes from the images with parameters of two
    dimensions or more; where there is none, with any.

    Args:
        network: maps images to logits; it is left alone.
        x: images that it takes, (N, C, H, W); two are enough.

    Raises:
        InputError: no layer with weights makes the output.

    >>> network = nn.ModuleDict({"out": nn.Linear(3, 2), "body": nn.Linear(4, 3)})
    >>> network.forward = lambda x: network["out"](network["body"](x))
    >>> sorted(head_parameters(network, torch.zeros(1, 4)))
    ['out.bias', 'out.weight']
    """
    function = FunctionalNetwork(network)
    leaves = {name: value.detach().clone().requires_grad_() for name, value in function.parameters.items()}
    images = x.detach().clone().requires_grad_()
    with torch.enable_grad(), torch.random.fork_rng([x.device] if x.is_cuda else []):
        output = function(leaves, images)
    names = {id(leaf): name for name, leaf in leaves.items()}
    joined = [names[id(leaf)] for leaf in _joined_last(output, images, 2) or _joined_last(output, images, 0)]
    if not joined:
        raise InputError(f"no layer with weights makes the output of {type(network).__name__}; name one by `head`")
    owners = {_owner(name) for name in joined}
    return frozenset(name for name in leaves if _owner(name) in owners)


def all_but(network: nn.Module, head: frozenset[str]) -> frozenset[str]:
    """Names of all parameters but those of the head.

    Raises:
        InputError: there are no others.
    """
    body = frozenset(name for name, _ in network.named_parameters()) - head
    if not body:
        name = type(network).__name__
        raise InputError(f"{name} is nothing but a head, and boil moves the rest; use `method='maml'`")
    return body


def _owner(name: str) -> str:
    """Path of the layer that a parameter belongs to; of a parametrised weight, the layer it is the weight of."""
    return name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]


def _joined_last(output: Tensor, images: Tensor, dimensions: int) -> list[Tensor]:
    """Give the parameters, of so many dimensions or more, that the last operation joins with what images became."""
    inputs: dict[Node, list[Node]] = {}
    todo = [output.grad_fn] if output.grad_fn is not None else []
    while todo:
        node = todo.pop()
        if node not in inputs:
            inputs[node] = [following for following, _ in node.next_functions if following is not None]
            todo += inputs[node]
    users: dict[Node, list[Node]] = {node: [] for node in inputs}
    for node, following in inputs.items():
        for used in following:
            users[used].append(node)
    from_images = _reached([node for node in inputs if getattr(node, "variable", None) is images], users)
    level = [output.grad_fn] if output.grad_fn in from_images else []
    while level:
        parameters = [used for node in level for used in inputs[node] if used not in from_images]
        leaves = [getattr(node, "variable", None) for node in _reached(parameters, inputs)]
        found = [leaf for leaf in leaves if leaf is not None and leaf.dim() >= dimensions]
        if found:
            return found
        level = list(dict.fromkeys(used for node in level for used in inputs[node] if used in from_images))
    return []


def _reached(starts: list[Node], edges: dict[Node, list[Node]]) -> dict[Node, None]:
    """All nodes that edges lead to, the starts among them, in the order they are met."""
    seen: dict[Node, None] = {}
    todo = list(starts)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen[node] = None
            todo += edges[node]
    return seen
