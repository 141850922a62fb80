"""Optimizer groups of a pretrained network: later layers learn faster than earlier ones."""

from typing import Any

from torch import nn

from arelu_meta.activations.parameters import activation_parameters


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
    activations behind it. Activation parameters have a multiple of their layer's rate and a weight decay of their
    own. Schedules start from `base_lr`.
    """
    own = set(activation_parameters(network))
    layer_of = _layers(network, own)
    layers = list(dict.fromkeys(layer_of.values()))
    groups: list[dict[str, Any]] = []
    for depth, layer in enumerate(layers):
        rate = lr * layer_decay ** (len(layers) - 1 - depth)
        members = [(name, weight) for name, weight in network.named_parameters() if layer_of[name] == layer]
        weights = [weight for name, weight in members if name not in own]
        activations = [weight for name, weight in members if name in own]
        if weights:
            groups.append({"params": weights, "lr": rate, "base_lr": rate, "weight_decay": weight_decay})
        if activations:
            rate *= activation_lr_multiplier
            groups.append({"params": activations, "lr": rate, "base_lr": rate, "weight_decay": activation_weight_decay})
    return groups


def _layers(network: nn.Module, own: set[str]) -> dict[str, str]:
    """Map each parameter's name to its layer; norms in a sequence and activations belong to the layer before them."""
    shapes = {name: parameter.dim() for name, parameter in network.named_parameters()}
    starts: dict[str, list[str]] = {}  # top-level child -> members that weigh their inputs, in order
    for name, dimensions in shapes.items():
        top, _, rest = name.partition(".")
        member = rest.partition(".")[0]
        if dimensions > 1 and name not in own and member not in starts.setdefault(top, []):
            starts[top].append(member)
    plain = {name for name, child in network.named_children() if isinstance(child, nn.Sequential | nn.ModuleList)}
    weighted = {name.partition(".")[0] for name in shapes if name not in own}
    layer_of, last = {}, ""
    for name in shapes:
        top, _, rest = name.partition(".")
        member = rest.partition(".")[0]
        if top not in weighted and last:  # an activation on its own is no layer
            pass
        elif top not in plain or len(starts.get(top, ())) < 2:
            last = top
        elif member in starts[top] or not last.startswith(f"{top}."):
            last = f"{top}.{member if member in starts[top] else starts[top][0]}"
        layer_of[name] = last
    first = next(iter(layer_of.values()), "")
    return {name: first if _behind_the_head(name, layer, last, weighted) else layer for name, layer in layer_of.items()}


def _behind_the_head(name: str, layer: str, head: str, weighted: set[str]) -> bool:
    """Tell an activation that comes after the head: it is called somewhere before, and where is not in the list.

    It learns as slowly as the first layer, for it may be that one's: at the head's rate its sums over large feature
    maps would drive it off.
    """
    return layer == head and name.partition(".")[0] not in weighted
