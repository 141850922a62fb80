"""Initial weights beside torch's default: He's, matched to the activation, or scaled by what a batch of images gives.

Activations differ in how much of a signal they let through, so a network with one of them may learn faster for its
scale alone. These are the controls for that. Weights of convolutions and linear layers; their biases are zero:

- `he`: Gaussian, deviation sqrt(2 / fan-in), which keeps the second moment of a signal with ReLU (He 2015, 1502.01852);
- `gain`: the same for any activation f: deviation g / sqrt(fan-in), where 1 / g^2 is the mean of f(z)^2 for Gaussian z;
- `unit_variance`: orthogonal, then scaled layer by layer so that the outputs for a batch of images have variance 1
  (Mishkin 2015, 1511.06422).
"""

import math
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from arelu_meta.activations.gain import mean_square
from arelu_meta.backbones import Init
from arelu_meta.errors import InputError

Layer: TypeAlias = (
    nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
)


@torch.no_grad()
def initialise(network: nn.Module, init: Init, *, activation: nn.Module, images: Tensor | None = None) -> nn.Module:
    """Draw the weights of all convolutions and linear layers anew, from torch's global random numbers.

    Args:
        network: any module; its norms and activations stay as they are
        init: default (nothing is changed), he, gain, unit_variance
        activation: a fresh one of the kind that the network has
        images: a batch (N, C, H, W) for `unit_variance`

    Returns:
        The network.

    Raises:
        InputError: a layer whose weight is computed from others (weight norm), an activation without a gain, images
            that are missing, or outputs that do not vary.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5))
    >>> images = torch.randn(100, 1, 8, 8)
    >>> started = initialise(network, "unit_variance", activation=nn.ReLU(), images=images)
    >>> round(started(images).var(correction=0).item(), 4)
    1.0
    """
    if init == "default":
        return network
    layers = {path: module for path, module in network.named_modules() if isinstance(module, Layer)}
    for path, layer in layers.items():
        if parametrize.is_parametrized(layer) or not isinstance(layer.weight, nn.Parameter):
            raise InputError(f"init {init!r} cannot set the weight of {path}, which is computed; use `init='default'`")
    gain = 1 / math.sqrt(mean_square(activation)) if init == "gain" else math.sqrt(2)
    for layer in layers.values():
        if init == "unit_variance":
            nn.init.orthogonal_(layer.weight)
        else:
            nn.init.normal_(layer.weight, std=gain / math.sqrt(fan_in(layer)))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    if init == "unit_variance":
        if images is None:
            raise InputError("init 'unit_variance' needs `images`, a batch of them")
        _scale_to_unit_variance(network, layers, images)
    return network


def fan_in(layer: Layer) -> float:
    """Inputs that one output is a sum of; of a transposed convolution their mean over the outputs.

    >>> fan_in(nn.Conv2d(6, 4, 3, groups=2)), fan_in(nn.ConvTranspose2d(6, 4, 2, stride=2)), fan_in(nn.Linear(5, 2))
    (27.0, 6.0, 5.0)
    """
    if isinstance(layer, nn.Linear):
        return float(layer.in_features)
    inputs = layer.in_channels / layer.groups * math.prod(layer.kernel_size)
    return inputs / math.prod(layer.stride) if layer.transposed else inputs


def _scale_to_unit_variance(network: nn.Module, layers: dict[str, Layer], images: Tensor) -> None:
    """Scale each layer as the images reach it: biases are zero, so that one pass is enough for all of them."""
    scaled: set[int] = set()  # a weight that is used twice is scaled by its first use

    def scale(layer: Layer, _inputs: Any, output: Tensor, *, path: str) -> Tensor | None:
        if id(layer.weight) in scaled:
            return None
        deviation = output.std(correction=0)
        if not (deviation.isfinite() and deviation > 0):
            raise InputError(f"init 'unit_variance': the outputs of {path} for {len(images)} images do not vary")
        scaled.add(id(layer.weight))
        layer.weight.div_(deviation)
        return output / deviation

    handles = [layer.register_forward_hook(partial(scale, path=path)) for path, layer in layers.items()]
    before = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        network(images)
    finally:
        for handle in handles:
            handle.remove()
        for buffer, value in before:
            buffer.copy_(value)
