"""Images for a network: what its publisher trained it on, and a set brought to that."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs, Resize, fit_images
from arelu_meta.errors import InputError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def declared(network: nn.Module, *, name: str, family: str, weights: str = "DEFAULT") -> Inputs:
    """Say what a network without such a header was made for, as its publisher does; else by its first layer."""
    channels = first_channels(network)
    if family == "torchvision":
        from torchvision import models

        published = models.get_model_weights(name)
        chosen = published[weights] if weights in published.__members__ else published.DEFAULT
        transforms = chosen.transforms()
        return Inputs(channels, transforms.crop_size[0], tuple(transforms.mean), tuple(transforms.std))
    config = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None)
    if isinstance(config, Mapping) and "mean" in config:
        return Inputs(channels, config["input_size"][-1], tuple(config["mean"]), tuple(config["std"]))
    return Inputs(channels)


def first_channels(network: nn.Module) -> int:
    """Colour channels of the first convolution; 0 where there is none."""
    return next((module.in_channels for module in network.modules() if isinstance(module, nn.Conv2d)), 0)


def fitted(images: ImageSet, inputs: Inputs, *, resize: Resize) -> ImageSet:
    """Give the images with the channels, size and statistics of `inputs`."""
    made = fit_images(images, channels=inputs.channels, image_size=inputs.image_size, resize=resize)
    return replace(made, mean=inputs.mean, std=inputs.std)


def check_size(images: int, inputs: Inputs, *, memory: float) -> None:
    """Refuse a set that would not fit into memory at the network's size, before it is made."""
    needed = images * inputs.channels * inputs.image_size**2
    if needed > 0.7 * memory:
        raise InputError(
            f"{images} images of {inputs.image_size}x{inputs.image_size} take {needed / 1e9:.1f} GB of "
            f"{memory / 1e9:.1f} GB; lower --image-size, or keep fewer with --train-per-class and --test-per-class"
        )


def example(inputs: Inputs, count: int) -> torch.Tensor:
    """Some images of noise that a network of these inputs takes."""
    random = torch.Generator().manual_seed(0)
    return torch.randn(count, inputs.channels, inputs.image_size, inputs.image_size, generator=random)
