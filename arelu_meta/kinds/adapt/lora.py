"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) beside linear layers and convolutions, by peft (optional)."""

import re
from types import ModuleType

import torch
from torch import Tensor, nn

from arelu_meta.backbones.features import FeatureNetwork
from arelu_meta.errors import InputError
from arelu_meta.seeding import global_stream

RANK = 4
MARK = "lora_"  # in the names of what peft adds


def import_peft() -> ModuleType:
    """Import peft, which is optional."""
    try:
        import peft
    except ModuleNotFoundError:
        raise InputError(
            "method lora needs peft, which is not installed; pip install 'arelu-meta[lora]', or name other methods"
        ) from None
    return peft


@torch.no_grad()
def adaptable_layers(body: FeatureNetwork, x: Tensor) -> dict[str, nn.Linear | nn.Conv2d]:
    """Layers that adapters can stand beside and be merged into, by name: those that features go through, not the head.

    A layer counts where its answer to what it is given is that of a plain linear map or convolution without groups. So
    one that standardises its weights, pads by itself or is never called is left out.

    Args:
        body: gives features, in evaluation mode
        x: images that it takes, (N, C, H, W)

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)).eval()
    >>> list(adaptable_layers(FeatureNetwork(network, "input", "3"), torch.zeros(2, 3, 2, 2)))
    ['1']
    """
    found: dict[str, nn.Linear | nn.Conv2d] = {}
    hooks = []
    for name, module in body.network.named_modules():
        if name == body.head or not isinstance(module, nn.Linear | nn.Conv2d):
            continue

        def compare(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, *, name: str = name) -> None:
            plain = _plain(layer) if isinstance(layer, nn.Linear | nn.Conv2d) else None
            if plain is not None and len(inputs) == 1:
                expected = plain(inputs[0])
                if expected.shape == output.shape and torch.allclose(expected, output, rtol=1e-4, atol=1e-5):
                    found[name] = plain

        hooks.append(module.register_forward_hook(compare))
    try:
        body(x)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def add_adapters(body: FeatureNetwork, x: Tensor, *, seed: int) -> None:
    """Put adapters of rank `RANK` beside all layers that can have them, in place; at the start they add nothing.

    Args:
        body: gives features; its network is changed
        x: images that it takes, (N, C, H, W)
        seed: of the first factors; the second ones are zero

    Raises:
        InputError: peft is not installed, or no layer can be adapted.
    """
    peft, layers = import_peft(), adaptable_layers(body, x)
    if not layers:
        raise InputError(
            f"{type(body.network).__name__} has no linear layer or convolution without groups that method lora could "
            "adapt; name other methods"
        )
    for name, layer in layers.items():
        body.network.set_submodule(name, layer)  # peft builds its factors by the constructor of the layer's class
    # A pattern: peft takes names of a list for endings of names.
    config = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules="|".join(map(re.escape, layers)))
    with global_stream(seed, "lora"):
        peft.inject_adapter_in_model(config, body.network)


def merge_adapters(network: nn.Module) -> None:
    """Add the adapters to the weights of their layers and take them away, in place."""
    for name, module in list(network.named_modules()):
        if isinstance(module, import_peft().tuners.lora.LoraLayer):
            module.merge()
            network.set_submodule(name, module.get_base_layer())


def _plain(layer: nn.Linear | nn.Conv2d) -> nn.Linear | nn.Conv2d | None:
    """The layer without what its class adds, its parameters shared; None where peft has no adapter for it."""
    plain: nn.Linear | nn.Conv2d
    if isinstance(layer, nn.Linear):
        plain = nn.Linear(layer.in_features, layer.out_features, device="meta")
    elif layer.groups == 1 and layer.padding_mode == "zeros" and max(layer.dilation) == 1:
        sizes: dict[str, tuple[int, ...]] = {"kernel_size": layer.kernel_size, "stride": tuple(layer.stride)}
        plain = nn.Conv2d(layer.in_channels, layer.out_channels, padding=layer.padding, device="meta", **sizes)  # type: ignore[arg-type]
    else:
        return None
    plain.weight, plain.bias = layer.weight, layer.bias
    return plain.train(layer.training)
