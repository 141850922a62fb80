"""Put a network together for a target: built, given its weights, its activations swapped, its head replaced."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from arelu_meta.activations import Activation
from arelu_meta.backbones.classifier_head import find_head, replace_head
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs, fit_images
from arelu_meta.data.squares import Resize
from arelu_meta.errors import InputError, first_line
from arelu_meta.pretrained.networks import (
    Model,
    ModelSource,
    build_network,
    declared_inputs,
    find_model,
    of_weights,
)
from arelu_meta.pretrained.timm_networks import convert_weights, head_path, is_headless
from arelu_meta.pretrained.weights import Weights, load_weights, read_weights
from arelu_meta.seeding import forked_generators, global_stream
from arelu_meta.surgery import SwapReport, swap

Normalise = Literal["weights", "imagenet", "target", "none"]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and deviation of the channels
COMPARED = 16  # images on which a swapped network is compared with what it was


@dataclass(frozen=True, eq=False)
class Assembled:
    """A network ready to be trained on the target, and how it came about.

    Attributes:
        network: the network, in training mode, with a head for the target's classes
        inputs: what images it takes; without statistics the target's own stay in place
        head: path of the layer that gives the logits
        weights: the weights it starts from
        report: what the swap of activations did, or None
        agreement: share of images whose first answer, among the classes of the weights, the swap left as it was; None
            without weights or without a swap
        target_statistics: whether images are to be normalised with the mean and deviation of the target
    """

    network: nn.Module
    inputs: Inputs
    head: str
    weights: Weights
    report: SwapReport | None = None
    agreement: float | None = None
    target_statistics: bool = False


def assemble(
    model: Model,
    *,
    images: ImageSet,
    weights: str = "none",
    model_options: Mapping[str, Any] | None = None,
    head: str = "",
    activation: Activation = "own",
    activation_options: Mapping[str, Any] | None = None,
    preserve: bool = False,
    channels: int = 0,
    image_size: int = 0,
    resize: Resize = "scale",
    normalise: Normalise = "weights",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    classes: int = 0,
    seed: int = 0,
) -> Assembled:
    """Build a network for the classes of a target, with weights, activations and head.

    Args:
        model: as in `find_model`: a name, a place, what builds one, or a module, copied with the weights it has
        images: the target, or a part of it with all its classes
        weights: a .safetensors or .pth file, a published weights name (DEFAULT), an MLflow URI; "none": untrained
        model_options: options of the network's builder
        head: path of the layer that gives the logits, where it cannot be found
        activation: what replaces the network's activations, as in `activations.build`; "own": nothing
        activation_options: options of that activation
        preserve: start the new activations where the old ones were
        channels: colour channels the images are turned into; 0: those of the network's first layer
        image_size: side in pixels the images are brought to; 0: the weights' own, or the images'
        resize: "scale" scales the shorter side and cuts the centre out, "squash" scales both sides, "crop" cuts alone
        normalise: whose mean and deviation: "weights" (the target's where unknown), "imagenet", "target", "none"
        mean: mean of each channel in [0, 1], given instead; one number or one per channel
        std: deviation of each channel, given with `mean`
        classes: outputs of the head; 0: the classes of the target
        seed: of initial weights and head, which do not depend on the activation

    Raises:
        InputError: an unknown name, weights that do not fit, images that the network cannot take, an unclear head.
    """
    shape, options = {"channels": channels, "image_size": image_size}, model_options or {}
    network, read, sized = load_network(model, weights, options, images, head=head, seed=seed, **shape)
    found = _find_head(network, sized, named=head)
    inputs, of_target = with_statistics(sized, normalise=normalise, mean=mean, std=std)
    named = (activation, activation_options or {}, images if read.state and found else None)  # features: no answers
    report, agreement = _swap(network, *named, inputs, resize, preserve=preserve, seed=seed)
    found = _new_head(network, inputs, found, classes=classes or len(images.class_names), seed=seed, check=bool(head))
    return Assembled(network.train(), inputs, found, read, report, agreement, of_target)


def load_network(
    model: Model,
    weights: str,
    options: Mapping[str, Any],
    images: ImageSet,
    *,
    head: str = "",
    channels: int = 0,
    image_size: int = 0,
    seed: int = 0,
) -> tuple[nn.Module, Weights, Inputs]:
    """Build a network in evaluation mode with its weights and the classes of these; also give what images it takes.

    Arguments are those of `assemble`. A network of timm is built by timm, which fits position embeddings and the first
    convolution to other sizes and channels.
    """
    source = of_weights(find_model(model), weights)
    read = read_weights(weights, model=source)
    with global_stream(seed, "weights"):
        network = build_network(
            source, options, images=images, state=read.state, channels=channels, image_size=image_size
        ).eval()
    inputs = read.inputs or declared_inputs(network, source, weights=weights)
    size = image_size or inputs.image_size
    if not size:
        height, width = images.image_size
        if height != width:
            raise InputError(f"{images.name} has images of {height}x{width}; bring them to a square by `image_size`")
        size = height
    inputs = replace(inputs, channels=channels or inputs.channels or images.channels, image_size=size)
    check_takes(network, inputs, model=source.name)
    if read.state:
        # A network of timm has the classes of its weights already, and may have two classifiers.
        found = head if source.family == "timm" else _find_head(network, inputs, named=head)
        network = _load_weights(network, read, source, options, head=found, channels=channels, image_size=image_size)
    return network, read, inputs


def _load_weights(
    network: nn.Module,
    read: Weights,
    source: ModelSource,
    options: Mapping[str, Any],
    *,
    head: str,
    channels: int,
    image_size: int,
) -> nn.Module:
    """Load weights as they are, but for the classes of the head; into a network of timm otherwise as timm does."""
    try:
        load_weights(network, read, model=source.bare, head=head)
        return network
    except InputError:
        if source.family != "timm":
            raise
        try:
            classes, sizes = int(network.num_classes), {"channels": channels, "image_size": image_size}  # type: ignore[arg-type]
            return convert_weights(source.bare, options, read.state, classes=classes, **sizes).eval()
        except (RuntimeError, TypeError, KeyError, ValueError):
            pass  # what does not fit is said better by us
        raise


def _find_head(network: nn.Module, inputs: Inputs, *, named: str = "") -> str:
    """Give the path of the head: as it is named, as timm's networks say themselves, or found by running it.

    It is empty for a network of timm that has none.
    """
    if is_headless(network) and not named:
        return ""
    return (not named and head_path(network)) or find_head(network, noise(inputs, 2), named=named)


def fit_to_inputs(images: ImageSet, inputs: Inputs, *, resize: Resize) -> ImageSet:
    """Give the images with the channels, size and statistics of `inputs`."""
    shape = {"channels": inputs.channels, "image_size": inputs.image_size}
    fitted = fit_images(images, **shape, resize=resize, crop_pct=inputs.crop_pct)
    return replace(fitted, mean=inputs.mean, std=inputs.std)


def check_memory(images: int, inputs: Inputs, *, memory: float) -> None:
    """Refuse a set that would not fit into so many bytes at the network's size, before it is made."""
    needed = images * inputs.channels * inputs.image_size**2
    if needed > 0.7 * memory:
        raise InputError(
            f"{images} images of {inputs.image_size}x{inputs.image_size} take {needed / 1e9:.1f} GB of "
            f"{memory / 1e9:.1f} GB; lower `image_size`, or take fewer images of each class"
        )


@torch.no_grad()
def _new_head(network: nn.Module, inputs: Inputs, head: str, *, classes: int, seed: int, check: bool) -> str:
    """Replace the head, or give one to a network of timm that has none, in place; its path is given back.

    `check` refuses a layer whose outputs are not the network's.
    """
    if not head:
        without_type: Any = network  # torch's modules have no such method
        with global_stream(seed, "head"):
            without_type.reset_classifier(classes)
        head = _find_head(network, inputs)
    replace_head(network, head, classes=classes, seed=seed)
    if not check:
        return head
    try:
        width = copy.deepcopy(network).eval()(noise(inputs, 2)).shape[1]
    except RuntimeError:
        width = 0
    if width != classes:
        raise InputError(
            f"`head` {head}: the network's answers do not come from this layer; leave it out to see which can be"
        )
    return head


@torch.no_grad()
def check_takes(network: nn.Module, inputs: Inputs, *, model: str, batch: int = 2) -> None:
    """Refuse images that the network cannot take, in evaluation or in training, before anything is trained."""
    shape = f"{inputs.channels}x{inputs.image_size}x{inputs.image_size}"
    with forked_generators():
        for training in (False, True):
            try:
                output = copy.deepcopy(network).train(training)(noise(inputs, batch if training else 2))
            except (RuntimeError, ValueError, AssertionError, IndexError) as error:
                reason = first_line(error)
                sizes = f"{batch} images of {shape} at once" if batch < 2 else f"images of {shape}"
                remedy = "`batch_size`" if batch < 2 else "`image_size` or `channels`"
                raise InputError(f"{model} cannot take {sizes}: {reason}; change {remedy}") from error
            if not isinstance(output, Tensor) or output.dim() != 2:
                kind = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
                mode = "training" if training else "evaluation"
                raise InputError(f"{model} gives {kind} in {mode}, not logits (N, classes); turn other outputs off")


def with_statistics(
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
            f'{len(chosen[0])} means for {inputs.channels} channels; give `mean` and `std`, or `normalise="target"`'
        )
    repeat = inputs.channels if len(chosen[0]) == 1 else 1
    return replace(inputs, mean=chosen[0] * repeat, std=chosen[1] * repeat), False


def _swap(
    network: nn.Module,
    activation: Activation,
    options: Mapping[str, Any],
    images: ImageSet | None,
    inputs: Inputs,
    resize: Resize,
    *,
    preserve: bool,
    seed: int,
) -> tuple[SwapReport | None, float | None]:
    """Swap the activations, unless the network keeps its own; on some of `images`, measure how many answers stay."""
    if activation == "own":
        return None, None
    if images is None:
        with global_stream(seed, "activations"):
            return swap(network, activation, preserve=preserve, example=noise(inputs, 2), **options), None
    numbers = torch.linspace(0, len(images) - 1, min(COMPARED, len(images))).long()  # spread over the set
    some = fit_to_inputs(images.subset(numbers), inputs, resize=resize)
    x = some.pixels(torch.arange(len(some), device=some.device)).cpu()  # (n, C, H, W)
    with torch.no_grad():
        before = network.eval()(x).argmax(1)
    with global_stream(seed, "activations"):
        report = swap(network, activation, preserve=preserve, example=x, **options)
    with torch.no_grad():
        return report, (network.eval()(x).argmax(1) == before).float().mean().item()


def noise(inputs: Inputs, count: int) -> Tensor:
    """Some images of noise that a network of these inputs takes, (count, C, H, W)."""
    random = torch.Generator().manual_seed(0)
    return torch.randn(count, inputs.channels, inputs.image_size, inputs.image_size, generator=random)
