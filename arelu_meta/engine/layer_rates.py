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

    A layer is a top-level child of the network that has parameters, in the order in which it was built. Activation
    parameters have a multiple of their layer's rate and a weight decay of their own. Schedules start from `base_lr`.
    """
    own = set(activation_parameters(network))
    layers = list(dict.fromkeys(name.split(".")[0] for name, _ in network.named_parameters()))
    groups: list[dict[str, Any]] = []
    for depth, layer in enumerate(layers):
        rate = lr * layer_decay ** (len(layers) - 1 - depth)
        members = [(name, weight) for name, weight in network.named_parameters() if name.split(".")[0] == layer]
        weights = [weight for name, weight in members if name not in own]
        activations = [weight for name, weight in members if name in own]
        if weights:
            groups.append({"params": weights, "lr": rate, "base_lr": rate, "weight_decay": weight_decay})
        if activations:
            rate *= activation_lr_multiplier
            groups.append({"params": activations, "lr": rate, "base_lr": rate, "weight_decay": activation_weight_decay})
    return groups
