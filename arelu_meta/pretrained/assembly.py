"""Put a network together for a target: built, given its weights, its activations swapped, its head replaced."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs, Resize
from arelu_meta.errors import InputError, first_line
from arelu_meta.pretrained import networks
from arelu_meta.pretrained.head import find_head, replace_head
from arelu_meta.pretrained.inputs import IMAGENET, declared, example, fitted
from arelu_meta.pretrained.weights import Weights, load_weights, read_weights
from arelu_meta.seeding import global_stream
from arelu_meta.surgery import SwapReport, swap

Normalise = Literal["weights", "imagenet", "target", "none"]
PROBED = 16  # images on which a swapped network is compared with what it was


@dataclass(frozen=True, eq=False)
class Assembled:
    """A network ready to be trained on the target, and how it came about.

    `agreement` is the share of images whose first answer, among the classes of the weights, the swap left as it was;
    None without weights or without a swap. `inputs` without statistics leave the target's own in place.
    """

    network: nn.Module
    inputs: Inputs
    head: str
    weights: Weights
    report: SwapReport | None = None
    agreement: float | None = None
    target_statistics: bool = False


def assemble(
    model: str,
    *,
    images: ImageSet,
    weights: str = "none",
    model_options: Mapping[str, Any] | None = None,
    head: str = "",
    activation: str = "own",
    activation_options: Mapping[str, Any] | None = None,
    preserve: bool = False,
    channels: int = 0,
    image_size: int = 0,
    resize: Resize = "scale",
    normalise: Normalise = "weights",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    seed: int = 0,
) -> Assembled:
    """Build `model` for the classes of `images`; initial weights and head depend on the seed, not on the activation."""
    family, bare = networks.family(model), model.rpartition("/")[2]
    read = read_weights(weights, model=model)
    with global_stream(seed, "weights"):
        network = networks.build(model, model_options or {}, images=images, state=read.state).eval()
    base = read.inputs or declared(network, name=bare, family=family, weights=weights)
    inputs = _asked(base, images, channels=channels, image_size=image_size)
    check_takes(network, inputs, model=model)
    found = find_head(network, example(inputs, 2), named=head)
    if read.state:
        load_weights(network, read, model=bare, head=found)
    inputs, of_target = _statistics(inputs, normalise=normalise, mean=mean, std=std)
    report, agreement = None, None
    if activation != "own":
        probe = _probe(images, inputs, resize) if read.state else None
        before = None if probe is None else _answers(network, probe)
        report = swap(network, activation, preserve=preserve, **(activation_options or {}))
        if probe is not None and before is not None:
            agreement = (_answers(network, probe) == before).float().mean().item()
    replace_head(network, found, classes=len(images.class_names), seed=seed)
    if head:
        _check_head(network, inputs, head, classes=len(images.class_names))
    return Assembled(network.train(), inputs, found, read, report, agreement, of_target)


@torch.no_grad()
def _check_head(network: nn.Module, inputs: Inputs, head: str, *, classes: int) -> None:
    """Refuse a named layer whose outputs are not the network's."""
    try:
        width = copy.deepcopy(network).eval()(example(inputs, 2)).shape[1]
    except RuntimeError:
        width = 0
    if width != classes:
        raise InputError(
            f"--head {head}: the network's answers do not come from this layer; leave --head out to see which can be"
        )


@torch.no_grad()
def check_takes(network: nn.Module, inputs: Inputs, *, model: str, batch: int = 2) -> None:
    """Refuse images that the network cannot take, in evaluation or in training, before anything is trained."""
    shape = f"{inputs.channels}x{inputs.image_size}x{inputs.image_size}"
    with torch.random.fork_rng():
        for training in (False, True):
            try:
                output = copy.deepcopy(network).train(training)(example(inputs, batch if training else 2))
            except (RuntimeError, ValueError, AssertionError, IndexError) as error:
                reason = first_line(error)
                sizes = f"{batch} images of {shape} at once" if batch < 2 else f"images of {shape}"
                remedy = "--batch-size" if batch < 2 else "--image-size or --channels"
                raise InputError(f"{model} cannot take {sizes}: {reason}; change {remedy}") from error
            if not isinstance(output, Tensor) or output.dim() != 2:
                kind = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
                mode = "training" if training else "evaluation"
                raise InputError(f"{model} gives {kind} in {mode}, not logits (N, classes); turn other outputs off")


def _asked(base: Inputs, images: ImageSet, *, channels: int, image_size: int) -> Inputs:
    """What the images are brought to: as asked, else as the weights have it, else as they are."""
    size = image_size or base.image_size
    if not size:
        height, width = images.image_size
        if height != width:
            raise InputError(f"{images.name} has images of {height}x{width}; bring them to a square with --image-size")
        size = height
    return replace(base, channels=channels or base.channels or images.channels, image_size=size)


def _statistics(
    inputs: Inputs, *, normalise: Normalise, mean: tuple[float, ...], std: tuple[float, ...]
) -> tuple[Inputs, bool]:
    """Choose the channel statistics; the flag says that they are to be the target's."""
    if mean:
        chosen = (mean, std)
    elif normalise == "imagenet":
        chosen = IMAGENET
    elif normalise == "none":
        chosen = ((), ())
    elif normalise == "weights" and inputs.mean:
        chosen = (inputs.mean, inputs.std)
    else:
        return replace(inputs, mean=(), std=()), True
    if chosen[0] and len(chosen[0]) not in (1, inputs.channels):
        raise InputError(
            f"{len(chosen[0])} means for {inputs.channels} channels; give --mean and --std, or --normalise target"
        )
    repeat = inputs.channels if len(chosen[0]) == 1 else 1
    return replace(inputs, mean=chosen[0] * repeat, std=chosen[1] * repeat), False


def _probe(images: ImageSet, inputs: Inputs, resize: Resize) -> Tensor:
    """Some images of the target, spread over the set, as the network takes them."""
    numbers = torch.linspace(0, len(images) - 1, min(PROBED, len(images))).long()
    some = fitted(images.subset(numbers), inputs, resize=resize)
    return some.pixels(torch.arange(len(some), device=some.device)).cpu()


@torch.no_grad()
def _answers(network: nn.Module, x: Tensor) -> Tensor:
    return network.eval()(x).argmax(1)
