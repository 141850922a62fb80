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
PRODUCTS = ("mm", "Mm", "mv", "Mv", "Dot", "Convolution", "Dist", "dist", "Linear")  # in the names of autograd's nodes


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
    """Names of the parameters of a layer or of a block of layers, by its path, or of one parameter, by its name.

    Raises:
        InputError: there is none of that path, or it has no parameters.

    >>> sorted(parameters_of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), "1"))
    ['1.bias', '1.weight']
    """
    names = [name for name, _ in network.named_parameters()]
    inside = frozenset(name for name in names if name == layer or name.startswith(f"{layer}."))
    if not inside:
        raise unknown("layer in `head`:", layer, {*names, *(name.rpartition(".")[0] for name in names)} - {""})
    return inside


def head_parameters(network: nn.Module, x: Tensor) -> frozenset[str]:
    """Names of the parameters of the head: the last linear layer on the way to the logits.

    It is found by what the forward pass does, whatever the layers are called and in whatever order they were made:
    going back from the logits, the first product (of matrices, a convolution, a distance) of what comes from the images
    with parameters, and what is added and multiplied behind it. Where several are summed, it is all of them.

    Args:
        network: maps images to logits; it is left alone.
        x: images that it takes, (N, C, H, W); two are enough.

    Raises:
        InputError: there is no such product, or none that can be told from the rest; the head has to be named then.

    >>> network = nn.ModuleDict({"out": nn.Linear(3, 2), "body": nn.Linear(4, 3)})
    >>> network.forward = lambda x: network["out"](network["body"](x))
    >>> sorted(head_parameters(network, torch.zeros(1, 4)))
    ['out.bias', 'out.weight']
    """
    kind = type(network).__name__
    if not x.is_floating_point():
        raise InputError(f"the head of {kind} cannot be found by inputs of {x.dtype}; name it by `head`")
    function = FunctionalNetwork(network)
    leaves = {name: value.detach().clone().requires_grad_() for name, value in function.parameters.items()}
    images = x.detach().clone().requires_grad_()
    with torch.enable_grad(), torch.random.fork_rng([x.device] if x.is_cuda else []):
        output = function(leaves, images)
    names = {id(leaf): name for name, leaf in leaves.items()}
    joined, products = _joined_last(output, images)
    head = frozenset(names[id(leaf)] for leaf in joined)
    if not head or (not products and len({name.rpartition(".")[0] for name in head}) > 1):
        raise InputError(f"no last layer was found between the images and the output of {kind}; name it by `head`")
    return head


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


def _joined_last(output: Tensor, images: Tensor) -> tuple[list[Tensor], int]:
    """Go back from the output and give the parameters met up to the first products, and the number of products."""
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
    met, products, done = list[Tensor](), 0, set[Node]()
    level = [output.grad_fn] if output.grad_fn in from_images else []
    while level:
        done.update(level)
        behind = list[Node]()
        for node in level:
            joined = _reached([used for used in inputs[node] if used not in from_images], inputs)
            leaves = [leaf for each in joined if isinstance(leaf := getattr(each, "variable", None), Tensor)]
            is_product = bool(leaves) and any(word in node.name() for word in PRODUCTS)
            met, products = met + leaves, products + is_product
            behind += [] if is_product else [used for used in inputs[node] if used in from_images]
        level = [node for node in dict.fromkeys(behind) if node not in done]
    return met, products


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
