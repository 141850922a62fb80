"""Which parameters adapt inside an episode: all, some by name, or parts: head, body, norms, activations, adapters."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from arelu_meta.activations.parameters import activation_parameters
from arelu_meta.errors import InputError, unknown
from arelu_meta.learners import PARTS
from arelu_meta.learners.functional_network import FunctionalNetwork
from arelu_meta.learners.low_rank import adapter_names

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
            raise unknown("parameter in `adapt`:", pattern, names)
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


def norm_parameters(network: nn.Module) -> frozenset[str]:
    """Names of the scales and shifts of norms, and of all biases.

    >>> sorted(norm_parameters(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))))
    ['0.bias', '1.bias', '1.weight']
    """
    norms = {name for name, module in network.named_modules() if "norm" in type(module).__name__.lower()}
    places = [(name, *name.rpartition(".")[::2], parameter) for name, parameter in network.named_parameters()]
    return frozenset(
        name for name, layer, leaf, parameter in places if leaf == "bias" or (layer in norms and parameter.dim() == 1)
    )


def chosen_names(network: nn.Module, adapt: str | Iterable[str], head: str = "") -> frozenset[str] | str | None:
    """Names of the parameters that adapt, as far as they can be told before the first episode.

    Args:
        network: the network.
        adapt: one of `learners.PARTS`, or several joined by "+"; otherwise names of parameters or patterns.
        head: path of the head; empty: it is found with the first episode.

    Returns:
        Names or patterns; None: all; `adapt` itself where the head has to be found first.

    Raises:
        InputError: a part without parameters, or a `head` that plays no role.
    """
    parts = adapt.split("+") if isinstance(adapt, str) else []
    by_head = {"head", "body"} & set(parts)
    if head and not by_head:
        raise InputError(f"adapt {adapt!r} treats no layer apart; leave `head` out ({head!r})")
    if not parts or not set(parts) <= set(PARTS):
        return frozenset({adapt} if isinstance(adapt, str) else adapt)
    if by_head and not head:
        return "+".join(parts)
    return names_of_parts(network, "+".join(parts), parameters_of(network, head) if head else frozenset())


def names_of_parts(network: nn.Module, parts: str, head: frozenset[str]) -> frozenset[str] | None:
    """Names of the parameters of parts, joined by "+"; `head` are those of the head. None: all.

    Raises:
        InputError: a part has no parameters.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.PReLU(), nn.Linear(2, 1))
    >>> sorted(names_of_parts(network, "head+activation", frozenset({"2.bias", "2.weight"})))
    ['1.weight', '2.bias', '2.weight']
    """
    kind, names = type(network).__name__, set[str]()
    if "all" in parts.split("+"):
        return None
    for part in parts.split("+"):
        if part == "activation":
            found = frozenset(activation_parameters(network))
            lacking = f"the activations of {kind} have no parameters to adapt; use `activation` arelu or prelu"
        elif part == "norm":
            found, lacking = norm_parameters(network), f"{kind} has neither norms nor biases to adapt"
        elif part == "lora":
            found, lacking = adapter_names(network), f"{kind} has no adapters; give it some by `with_adapters`"
        elif part == "body":
            found = frozenset(name for name, _ in network.named_parameters()) - head
            lacking = f"{kind} is nothing but a head, and the body is to adapt"
        else:
            found, lacking = head, f"{kind} has no head to adapt"
        if not found:
            raise InputError(f"{lacking}, or `adapt='all'` (adapt = {parts!r})")
        names |= found
    return frozenset(names)


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
