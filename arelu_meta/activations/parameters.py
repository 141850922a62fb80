"""Activation parameters apart from the weights: find them, and give the optimizer groups of their own.

He et al. 2015 leave PReLU's slopes out of weight decay; decay would pull AReLU's alpha to zero, where its clamp is
dead.
"""

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter

from arelu_meta.activations import ACTIVATION_MARK

LISTED = 16  # numbers of one parameter that are shown one by one


def is_activation(module: nn.Module) -> bool:
    """Tell a module that `activations.build` made, or a `torch.nn.PReLU` of anyone's, from other layers."""
    return hasattr(module, ACTIVATION_MARK) or isinstance(module, nn.PReLU)


def draws_random_numbers(module: nn.Module) -> bool:
    """Tell an activation whose output is random in training mode: RReLU, or a class of your own that says so.

    A class of your own has the attribute `draws_random_numbers = True`.

    >>> draws_random_numbers(nn.RReLU()), draws_random_numbers(nn.ReLU())
    (True, False)
    """
    return isinstance(module, nn.RReLU) or bool(getattr(module, "draws_random_numbers", False))


def activation_modules(model: nn.Module) -> dict[str, nn.Module]:
    """All activation modules of a network by name, outermost only (ELSA's base belongs to ELSA)."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        inside = any(not outer or name.startswith(f"{outer}.") for outer in found)
        if is_activation(module) and not inside:
            found[name] = module
    return found


def activation_parameters(model: nn.Module) -> dict[str, Parameter]:
    """All parameters that belong to activations, by their name in the network."""
    return {
        f"{layer}.{name}" if layer else name: parameter
        for layer, module in activation_modules(model).items()
        for name, parameter in module.named_parameters()
    }


def parameter_groups(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    activation_lr_multiplier: float = 1.0,
    activation_weight_decay: float = 0.0,
) -> list[dict[str, Any]]:
    """Make the parameter groups of an optimizer: weights, then activation parameters when there are any.

    Args:
        model: the network
        lr: learning rate of the weights
        weight_decay: weight decay of the weights
        activation_lr_multiplier: learning rate of activation parameters, as a multiple of `lr`
        activation_weight_decay: weight decay of activation parameters

    Returns:
        One or two groups, as `torch.optim` takes them.

    >>> from arelu_meta import activations
    >>> net = nn.Sequential(nn.Linear(2, 2), activations.build("arelu"))
    >>> [(len(group["params"]), group["weight_decay"]) for group in parameter_groups(net, lr=0.1, weight_decay=0.01)]
    [(2, 0.01), (2, 0.0)]
    """
    activation = list(activation_parameters(model).values())
    identities = {id(parameter) for parameter in activation}
    weights = [parameter for parameter in model.parameters() if id(parameter) not in identities]
    groups: list[dict[str, Any]] = [{"params": weights, "lr": lr, "weight_decay": weight_decay}]
    if activation:
        groups.append(
            {"params": activation, "lr": lr * activation_lr_multiplier, "weight_decay": activation_weight_decay}
        )
    return groups


def activation_values(model: nn.Module) -> dict[str, float]:
    """Every learned activation number by layer: `activation/block1.2.alpha`, vectors with their index.

    Of more than 16 numbers, such as one for each channel, the smallest, the mean and the largest.

    >>> from arelu_meta import activations
    >>> activation_values(nn.Sequential(activations.build("prelu")))
    {'activation/0.weight': 0.25}
    """
    values: dict[str, float] = {}
    learned = {name: parameter.detach().flatten() for name, parameter in activation_parameters(model).items()}
    # One copy from the device for all of them: each would wait for all that is computed there.
    together = iter(torch.cat(list(learned.values())).tolist() if learned else ())
    for name, parameter in learned.items():
        numbers = list(itertools.islice(together, len(parameter)))
        if len(numbers) > LISTED:  # of each channel, or weights
            ends = {"min": min(numbers), "mean": sum(numbers) / len(numbers), "max": max(numbers)}
            values.update({f"activation/{name}.{key}": number for key, number in ends.items()})
            continue
        keys = [name] if len(numbers) == 1 else [f"{name}.{index}" for index in range(len(numbers))]
        values.update({f"activation/{key}": number for key, number in zip(keys, numbers, strict=True)})
    return values
