"""The layer that gives a network's logits: found by running it, and replaced for other classes."""

from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.errors import InputError
from arelu_meta.seeding import global_stream


def is_head_layer(module: nn.Module) -> bool:
    """Tell whether a layer can be a classifier: linear, or a convolution of 1x1 over all channels."""
    return isinstance(module, nn.Linear) or (
        isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1
    )


@torch.no_grad()
def find_head(network: nn.Module, x: Tensor, *, named: str = "") -> str:
    """Give the path of the layer whose outputs are the logits (N, K): of the K-wide layers that run, the only one, or
    the one whose output is the network's. Where that does not decide, it is refused with the candidates.
    """
    layers = {name: module for name, module in network.named_modules() if name and is_head_layer(module)}
    if named:
        if named not in layers:
            raise InputError(f"--head {named}: no linear layer or 1x1 convolution of that path; {_listed(layers)}")
        return named
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda _module, _args, output: outputs.__setitem__(name, output)

    hooks = [module.register_forward_hook(keep(name)) for name, module in layers.items()]
    was = network.training
    try:
        logits = network.eval()(x)
    finally:
        network.train(was)
        for hook in hooks:
            hook.remove()
    wide = [name for name in outputs if width(layers[name]) == logits.shape[1]]
    same = [name for name in wide if torch.equal(outputs[name].flatten(1), logits.flatten(1))]
    chosen = wide if len(wide) == 1 else same
    if len(chosen) != 1:
        why = f"{len(wide)} layers have {logits.shape[1]} outputs" if wide else "no layer gives the logits"
        shown = {name: layers[name] for name in (wide or layers)}
        raise InputError(f"which layer is the classifier? {why}; name it with --head; {_listed(shown)}")
    return chosen[0]


def width(layer: nn.Module) -> int:
    """Number of outputs of a linear layer or a convolution."""
    return layer.out_features if isinstance(layer, nn.Linear) else int(layer.out_channels)  # type: ignore[arg-type]


def replace_head(network: nn.Module, path: str, *, classes: int, seed: int) -> None:
    """Put a layer for so many classes in the head's place; its start is drawn from the seed's stream `head`."""
    parent_path, _, leaf = path.rpartition(".")
    old = network.get_submodule(path)
    with global_stream(seed, "head"):
        new: nn.Module
        if isinstance(old, nn.Linear):
            new = nn.Linear(old.in_features, classes, bias=old.bias is not None)
        elif isinstance(old, nn.Conv2d):
            new = nn.Conv2d(old.in_channels, classes, 1, bias=old.bias is not None)
    network.get_submodule(parent_path).add_module(leaf, new.train(old.training))


def _listed(layers: dict[str, nn.Module]) -> str:
    names = list(layers)[-8:]
    return f"candidates: {', '.join(names) or 'none'}" + (" (the last 8)" if len(layers) > 8 else "")
