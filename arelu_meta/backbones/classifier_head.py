"""The layer that gives a network's logits: found by running it, and replaced for other classes."""

import torch
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.seeding import global_stream


@torch.no_grad()
def find_head(network: nn.Module, x: Tensor, *, named: str = "") -> str:
    """Find the layer whose outputs are the logits: of the K-wide layers that run, the only one, or the one whose
    output is the network's.

    Args:
        network: a classifier; it is left in the mode it is in
        x: images that it takes, (N, C, H, W); two are enough
        named: path of the layer, where it is known: it is only checked

    Returns:
        The path of a linear layer or a 1x1 convolution over all channels.

    Raises:
        InputError: no layer or several could be the head, or `named` is no such layer; with the candidates.

    >>> find_head(nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)), torch.zeros(2, 3, 2, 2))
    '3'
    """
    layers = {name: module for name, module in network.named_modules() if name and _width(module)}
    if named:
        if named not in layers:
            raise InputError(f"`head` {named}: no linear layer or 1x1 convolution of that path; {_listed(layers)}")
        return named
    outputs: dict[str, Tensor] = {}
    names = {module: name for name, module in layers.items()}
    hooks = [
        module.register_forward_hook(lambda module, _, output: outputs.__setitem__(names[module], output))
        for module in layers.values()
    ]
    was_training = network.training
    try:
        logits = network.eval()(x)
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    wide = [name for name in outputs if _width(layers[name]) == logits.shape[1]]
    same = [name for name in wide if torch.equal(outputs[name].flatten(1), logits.flatten(1))]
    chosen = wide if len(wide) == 1 else same
    if len(chosen) != 1:
        why = f"{len(wide)} layers have {logits.shape[1]} outputs" if wide else "no layer gives the logits"
        raise InputError(f"which layer is the classifier? {why}; name it by `head`; {_listed(wide or layers)}")
    return chosen[0]


def replace_head(network: nn.Module, path: str, *, classes: int, seed: int) -> None:
    """Put a layer for other classes in the head's place, in place.

    Args:
        network: the network
        path: path of its head, a linear layer or a 1x1 convolution
        classes: outputs of the new layer
        seed: its initial weights are drawn from the stream `head` of this seed, whatever else was drawn before

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 1000))
    >>> replace_head(network, "1", classes=5, seed=0)
    >>> network(torch.zeros(2, 3, 2, 2)).shape
    torch.Size([2, 5])
    """
    parent_path, _, leaf = path.rpartition(".")
    old = network.get_submodule(path)
    with global_stream(seed, "head"):
        new: nn.Module
        if isinstance(old, nn.Linear):
            new = nn.Linear(old.in_features, classes, bias=old.bias is not None)
        elif isinstance(old, nn.Conv2d):
            new = nn.Conv2d(old.in_channels, classes, 1, bias=old.bias is not None)
    network.get_submodule(parent_path).add_module(leaf, new.train(old.training))


def _width(layer: nn.Module) -> int:
    """Outputs of a layer that can be a classifier: linear, or a convolution of 1x1 over all channels; else 0."""
    if isinstance(layer, nn.Linear):
        return layer.out_features
    pointwise = isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.groups == 1
    return int(layer.out_channels) if pointwise else 0  # type: ignore[arg-type]


def _listed(layers: "list[str] | dict[str, nn.Module]") -> str:
    names = list(layers)[-8:]
    return f"candidates: {', '.join(names) or 'none'}" + (" (the last 8)" if len(layers) > 8 else "")
