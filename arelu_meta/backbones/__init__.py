"""Networks by name. Each takes an activation factory, the input's channels and size, and the number of classes.

    from arelu_meta import activations, backbones
    factory = activations.factory("arelu")
    net = backbones.build("mnist_conv", activation=factory, channels=1, image_size=(28, 28), classes=5)

A new one is one file here and one line below; the contract suite then runs over it. Listing them imports no torch.

All start from torch's default initialisation, drawn in the same order whatever the activation. The layer before an
activation of several pieces (Maxout) is as many times wider. Those for CIFAR and `unet` have batch norm with running
statistics; learners that adapt by gradient use those of the batch in its place.
"""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from arelu_meta.activations import Factory
from arelu_meta.errors import InputError, unknown
from arelu_meta.registry import Entry, Registry

if TYPE_CHECKING:
    from torch import nn

__all__ = ["BackboneEntry", "build", "check_options", "entries", "names"]

Task = Literal["classification", "segmentation"]


@dataclass(frozen=True)
class BackboneEntry(Entry):
    """A named network, the publication it comes from, and its task.

    `classification` networks give logits (N, classes), `segmentation` networks (N, classes, H, W).
    """

    source: str = ""
    task: Task = "classification"


_REGISTRY = Registry[BackboneEntry]("backbone")
_REGISTRY.add(
    BackboneEntry(
        "mnist_conv",
        "arelu_meta.backbones.mnist_conv:MnistConv",
        summary="three convolutions of 10, 20, 40 channels, each pooled, then activated",
        source="Chen 2020, arXiv 2006.13858",
    ),
    BackboneEntry(
        "conv4",
        "arelu_meta.backbones.conv4:Conv4",
        summary="four 3x3 blocks of 64 filters; norm: batch, group or none",
        source="Vinyals 2016, arXiv 1606.04080; Finn 2017, arXiv 1703.03400",
    ),
    BackboneEntry(
        "vgg11",
        "arelu_meta.backbones.vgg:Vgg11",
        summary="eight 3x3 convolutions with batch norm, five max-pools; 32x32 and more",
        source="Simonyan 2014, arXiv 1409.1556",
    ),
    BackboneEntry(
        "vgg13",
        "arelu_meta.backbones.vgg:Vgg13",
        summary="ten 3x3 convolutions with batch norm, five max-pools; 32x32 and more",
        source="Simonyan 2014, arXiv 1409.1556",
    ),
    BackboneEntry(
        "resnet18",
        "arelu_meta.backbones.resnet:ResNet18",
        summary="eight residual blocks behind a 3x3 stem",
        source="He 2015, arXiv 1512.03385",
    ),
    BackboneEntry(
        "seresnet18",
        "arelu_meta.backbones.resnet:SEResNet18",
        summary="resnet18 with squeeze-and-excitation in every block",
        source="Hu 2017, arXiv 1709.01507",
    ),
    BackboneEntry(
        "mobilenet",
        "arelu_meta.backbones.mobilenet:MobileNet",
        summary="version 1: 13 depthwise separable blocks",
        source="Howard 2017, arXiv 1704.04861",
    ),
    BackboneEntry(
        "shufflenet_v2",
        "arelu_meta.backbones.shufflenet_v2:ShuffleNetV2",
        summary="width 1.0: 16 units that split, transform and shuffle channels",
        source="Ma 2018, arXiv 1807.11164",
    ),
    BackboneEntry(
        "squeezenet",
        "arelu_meta.backbones.squeezenet:SqueezeNet",
        summary="version 1.0 with batch norm: eight fire modules",
        source="Iandola 2016, arXiv 1602.07360",
    ),
    BackboneEntry(
        "unet",
        "arelu_meta.backbones.unet:UNet",
        summary="segmentation: four levels of 32 to 512 filters, batch norm",
        source="Buda 2019, arXiv 1906.03720",
        task="segmentation",
    ),
)


def names(task: Task | None = None) -> list[str]:
    """Names of all networks, or of those of one task.

    Args:
        task: "classification" or "segmentation"; None: all

    >>> names("segmentation")
    ['unet']
    """
    return [entry.name for entry in _REGISTRY if task in (None, entry.task)]


def entries() -> list[BackboneEntry]:
    """All networks with their summaries and sources.

    >>> [entry.source for entry in entries() if entry.name == "resnet18"]
    ['He 2015, arXiv 1512.03385']
    """
    return list(_REGISTRY)


def build(
    name: str, *, activation: Factory, channels: int, image_size: tuple[int, int], classes: int, **options: Any
) -> "nn.Module":
    """Make a network by name, with torch's default initialisation.

    Args:
        name: a name of `names()`
        activation: gives a fresh activation each time, from `activations.factory`
        channels: channels of the images
        image_size: their height and width
        classes: number of logits
        options: options of the network, such as `norm="group"` of conv4

    Returns:
        A module from images (N, channels, H, W) to logits, (N, classes), or (N, classes, H, W) for segmentation.

    Raises:
        InputError: an unknown name or option, a count below 1, images of a size that the network does not take.

    >>> from arelu_meta import activations
    >>> net = build("conv4", activation=activations.factory("arelu"), channels=1, image_size=(28, 28), classes=5)
    >>> sum(parameter.numel() for parameter in net.parameters())
    112269
    """
    check_options(name, options)
    parameters = inspect.signature(_REGISTRY[name].load()).parameters
    for option, value in options.items():  # some of it would only fail when the first image comes
        if parameters[option].annotation is int and (type(value) is not int or value < 1):
            raise InputError(f"backbone {name!r} takes a whole number above 0 for {option}, not {value!r}")
    built: nn.Module = _REGISTRY[name].load()(
        activation=activation, channels=channels, image_size=image_size, classes=classes, **options
    )
    return built


def check_options(name: str, options: Iterable[str]) -> None:
    """Refuse options the network does not have, and those that come from the data and the episode.

    Args:
        name: name of a registered network
        options: names of options

    Raises:
        InputError: the network has no such option.

    >>> check_options("conv4", ["filters", "norm"])
    """
    accepted = set(inspect.signature(_REGISTRY[name].load()).parameters)
    accepted -= {"activation", "channels", "image_size", "classes"}
    for option in options:
        if option not in accepted:
            raise unknown(f"option of backbone {name!r}:", option, accepted)
