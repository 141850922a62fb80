"""Learning rates of supervised training: by layer, as parameter groups of an optimizer, and over the epochs."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from arelu_meta.activations.parameters import activation_parameters

Schedule = Literal["constant", "step", "cosine"]


def layer_groups(
    network: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    activation_lr_multiplier: float = 1.0,
    activation_weight_decay: float = 0.0,
    layer_decay: float = 1.0,
) -> list[dict[str, Any]]:
    """Make one group per layer and kind of parameter, with lr * layer_decay^(layers after it).

    A layer is a top-level child of the network that has parameters, in the order in which it was built; of a plain
    sequence (torchvision's `features`, a stage) each convolution, linear layer or block is one, with the norms and
    activations behind it. Where rates decay, networks of timm have timm's layers instead (`group_matcher`), and what
    timm decays no weights of (`no_weight_decay`, biases, norms) has no weight decay: the groups of
    `timm.optim.param_groups_layer_decay`. Activation parameters have a multiple of their layer's rate and a weight
    decay of their own. Schedules start from `base_lr`.
    """
    of_activations = set(activation_parameters(network))
    undecayed = frozenset[str]()
    if layer_decay != 1 and hasattr(network, "group_matcher"):
        layer_of, undecayed = _layers_of_timm(network)
    else:
        names = _layer_of_parameters(network, of_activations)
        order = {layer: number for number, layer in enumerate(dict.fromkeys(names.values()))}
        layer_of = {name: order[layer] for name, layer in names.items()}
    last = max(layer_of.values(), default=0)
    groups: dict[tuple[int, int], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        layer = layer_of.get(name, last)
        rate, decay, kind = lr * layer_decay ** (last - layer), weight_decay, 0
        if name in of_activations:
            rate, decay, kind = rate * activation_lr_multiplier, activation_weight_decay, 2
        elif name in undecayed:
            decay, kind = 0.0, 1
        new = {"params": [], "lr": rate, "base_lr": rate, "weight_decay": decay}
        groups.setdefault((layer, kind), new)["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]


def _layers_of_timm(network: nn.Module) -> tuple[dict[str, int], frozenset[str]]:
    """Give the layer of each parameter of a network of timm by timm's own patterns, and those without weight decay."""
    from timm.models import group_parameters

    any_network: Any = network  # torch's modules have no such methods
    layers = group_parameters(network, any_network.group_matcher(coarse=False), reverse=True)
    listed = any_network.no_weight_decay() if hasattr(network, "no_weight_decay") else ()
    undecayed = {name for name, value in network.named_parameters() if value.dim() <= 1 or name in listed}
    return {str(name): int(layer) for name, layer in layers.items()}, frozenset(undecayed)


def _layer_of_parameters(network: nn.Module, of_activations: set[str]) -> dict[str, str]:
    """Map each parameter's name to its layer: a top-level child, or `child.member` of a sequence with several layers.

    Norms in a sequence and activations belong to the layer before them. An activation that was built after the head is
    called somewhere before it, and where is unknown. It gets the rate of the first layer: at the head's rate its sums
    over large feature maps could diverge.
    """
    names = [(name, *(*name.split("."), "")[:2]) for name, _ in network.named_parameters()]
    parameters = dict(network.named_parameters())
    starts: dict[str, list[str]] = {}  # child with weights -> members with a weight matrix, each the start of a layer
    for name, child, member in names:
        if name not in of_activations:
            members = starts.setdefault(child, [])
            if parameters[name].dim() > 1 and member not in members:
                members.append(member)
    sequences = {name for name, child in network.named_children() if isinstance(child, nn.Sequential | nn.ModuleList)}
    layer, layer_of = "", {}
    for name, child, member in names:
        if child in sequences and len(starts.get(child, ())) > 1:
            if member in starts[child]:
                layer = f"{child}.{member}"
            elif not layer.startswith(f"{child}."):  # a norm before the first convolution
                layer = f"{child}.{starts[child][0]}"
        elif child in starts or not layer:  # an activation on its own starts no layer
            layer = child
        layer_of[name] = layer
    first, head = next(iter(layer_of.values()), ""), layer
    behind_head = [name for name, child, _ in names if child not in starts and layer_of[name] == head]
    return layer_of | dict.fromkeys(behind_head, first)


def lr_factor(
    epoch: float, *, schedule: Schedule, epochs: int, milestones: Sequence[int] = (), warmup_epochs: int = 0
) -> float:
    """Factor of the learning rate at a point in training, `epoch` counting passes from 0 with fractions.

    >>> lr_factor(60, schedule="step", epochs=100, milestones=[50, 75])
    0.1
    >>> lr_factor(0.5, schedule="constant", epochs=10, warmup_epochs=2)
    0.25
    >>> round(lr_factor(5, schedule="cosine", epochs=10), 3)
    0.5
    """
    if epoch < warmup_epochs:
        return epoch / warmup_epochs
    if schedule == "step":
        return float(0.1 ** sum(epoch >= milestone for milestone in milestones))
    if schedule == "cosine":
        done = (epoch - warmup_epochs) / max(epochs - warmup_epochs, 1e-9)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    return 1.0
