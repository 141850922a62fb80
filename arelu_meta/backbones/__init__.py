"""Networks by name. Each takes an activation factory, the input's channels and size, and the number of classes.

    from arelu_meta import activations, backbones
    factory = activations.factory("arelu")
    net = backbones.build("mnist_conv", activation=factory, channels=1, image_size=(28, 28), classes=5)

A new one is one file here and one line below; the contract suite then runs over it. One of your own is a class or a
function with the same four parameters: `@backbones.register("mine")`, `package.module:Class`, the class itself, or an
entry point of a package in the group `arelu_meta.backbones` (docs/extending.md). Listing them imports no torch.

All start from torch's default initialisation, drawn in the same order whatever the activation; `initialisation.py` has
others. The layer before an activation of several pieces (Maxout) is as many times wider. Those for CIFAR and `unet`
have batch norm with running statistics; learners that adapt by gradient use those of the batch in its place.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from arelu_meta.activations import Factory
from arelu_meta.errors import InputError, first_line
from arelu_meta.registry import Entry, Registry, check_accepts, parameters_of

if TYPE_CHECKING:
    from torch import nn

Task = Literal["classification", "segmentation"]
Init = Literal["default", "he", "gain", "unit_variance"]  # initial weights, in `initialisation.py`
Backbone: TypeAlias = "str | Callable[..., nn.Module]"

__all__ = ["Backbone", "BackboneEntry", "build", "check_options", "entries", "is_pretrained", "names", "register"]

GIVEN = ("activation", "channels", "image_size", "classes")  # what every network is called with
PRETRAINED = ("timm", "torchvision", "installed", "arelu_meta")  # before a `/`: networks that `pretrained` builds


@dataclass(frozen=True)
class BackboneEntry(Entry):
    """A named network, the publication it comes from, and its task.

    `classification` networks give logits (N, classes), `segmentation` networks (N, classes, H, W). None: of an entry
    point of another package it is not known before it is built.
    """

    source: str = ""
    """publication it comes from"""
    task: Task | None = "classification"
    side: int = 32
    """pixels that image files of different sizes are resampled to for it, where no size is named"""


_REGISTRY = Registry("backbone", partial(BackboneEntry, task=None), group="arelu_meta.backbones")
_REGISTRY.add(
    BackboneEntry(
        "mnist_conv",
        "arelu_meta.backbones.mnist_conv:MnistConv",
        summary="three convolutions of 10, 20, 40 channels, each pooled, then activated",
        source="Chen 2020, arXiv 2006.13858",
        side=28,
    ),
    BackboneEntry(
        "conv4",
        "arelu_meta.backbones.conv4:Conv4",
        summary="four 3x3 blocks of 64 filters; norm: batch, group or none",
        source="Vinyals 2016, arXiv 1606.04080; Finn 2017, arXiv 1703.03400",
        side=84,
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
        "mlp",
        "arelu_meta.backbones.mlp:Mlp",
        summary="two hidden layers of 40 on vectors, or on the pixels of images",
        source="Finn 2017, arXiv 1703.03400",
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
        task: "classification" or "segmentation"; None: all. What other packages bring may be of either

    Returns:
        Names that `build` takes.

    >>> names("segmentation")
    ['unet']
    """
    return [entry.name for entry in _REGISTRY if task is None or entry.task in (None, task)]


def is_pretrained(name: str) -> bool:
    """Tell a name that `arelu_meta.pretrained` builds, with or without weights, from one of `names()`.

    Args:
        name: such as `timm/NAME`

    Returns:
        Whether it names the place of one, such as `timm`, before a slash.

    >>> is_pretrained("timm/resnet18"), is_pretrained("resnet18")
    (True, False)
    """
    return "/" in name and name.partition("/")[0] in PRETRAINED


def entries() -> list[BackboneEntry]:
    """All networks with their summaries and sources.

    >>> [entry.source for entry in entries() if entry.name == "resnet18"]
    ['He 2015, arXiv 1512.03385']
    """
    return list(_REGISTRY)


def side_for(backbone: str) -> int:
    """Pixels a side of the squares that image files of different sizes are read as, where no size is named.

    >>> side_for("mnist_conv"), side_for("package.module:Mine")
    (28, 32)
    """
    return _REGISTRY[backbone].side if backbone in _REGISTRY.names() else BackboneEntry.side


def register(
    name: str, *, summary: str = "", source: str = "", task: Task = "classification"
) -> Callable[["type[nn.Module] | Callable[..., nn.Module]"], "type[nn.Module] | Callable[..., nn.Module]"]:
    """Register a network of your own under a name, as a decorator of its class or of a function that builds it.

    It is called as `build` says, with `activation`, `channels`, `image_size`, `classes` and its own options.

    Args:
        name: the name that `build`, task files and flags take
        summary: what it is, in one line
        source: the publication it comes from
        task: "classification" for logits (N, classes), "segmentation" for (N, classes, H, W)

    Returns:
        A decorator that gives back what it is given.

    Raises:
        InputError: the name is registered already, or it does not take one of the four.

    >>> from torch import nn
    >>> from arelu_meta import activations
    >>> @register("one_layer", summary="a hidden layer on the pixels")
    ... def one_layer(activation, channels, image_size, classes, width=8):
    ...     pixels = channels * image_size[0] * image_size[1]
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), activation(), nn.Linear(width, classes))
    >>> relu = activations.factory("relu")
    >>> len(build("one_layer", activation=relu, channels=1, image_size=(8, 8), classes=5, width=16))
    4
    >>> _REGISTRY.remove("one_layer")
    """

    def add(target: "type[nn.Module] | Callable[..., nn.Module]") -> "type[nn.Module] | Callable[..., nn.Module]":
        check_accepts(f"backbone {name!r}", target, (), given=GIVEN)
        _REGISTRY.add(BackboneEntry(name, target, summary, source, task))
        return target

    return add


def build(
    backbone: Backbone,
    *,
    activation: Factory,
    channels: int,
    image_size: tuple[int, int],
    classes: int,
    **options: Any,
) -> "nn.Module":
    """Make a network, ours with torch's default initialisation.

    Args:
        backbone: a name of `names()`, `package.module:Class`, or a class or function that takes the four below
        activation: gives a fresh activation each time, from `activations.factory`
        channels: channels of the images
        image_size: their height and width
        classes: number of logits
        options: options of the network, such as `norm="group"` of conv4

    Returns:
        A module from images (N, channels, H, W) to logits, (N, classes), or (N, classes, H, W) for segmentation.

    Raises:
        InputError: an unknown name or option, a count below 1, images of a size that the network does not take, or
            what is made is no `torch.nn.Module`.

    >>> from arelu_meta import activations
    >>> net = build("conv4", activation=activations.factory("arelu"), channels=1, image_size=(28, 28), classes=5)
    >>> sum(parameter.numel() for parameter in net.parameters())
    112269
    """
    from torch import nn

    check_options(backbone, options)
    entry = _REGISTRY.find(backbone)
    taken, _ = parameters_of(target := entry.load())
    for option, value in options.items():  # some of it would only fail when the first image comes
        if option in taken and taken[option].annotation is int and (type(value) is not int or value < 1):
            raise InputError(f"backbone {entry.name!r} takes a whole number above 0 for {option}, not {value!r}")
    try:
        built = target(activation=activation, channels=channels, image_size=image_size, classes=classes, **options)
    except (InputError, RuntimeError, OSError, MemoryError):  # no matter of the options; the next try may do
        raise
    except Exception as error:  # code of anyone's may raise anything
        given = ", ".join(f"{option}={value!r}" for option, value in options.items()) or "no options"
        kind = "" if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: "
        raise InputError(f"backbone {entry.name!r} cannot be built with {given}: {kind}{first_line(error)}") from error
    if not isinstance(built, nn.Module):
        raise InputError(f"backbone {entry.name!r} gives a {type(built).__name__}, not a torch.nn.Module")
    return _fitted(built, channels, image_size)


def _fitted(built: "nn.Module", channels: int, image_size: tuple[int, int]) -> "nn.Module":
    """Let activations with numbers for each channel count these."""
    import torch

    from arelu_meta.activations.channels import fit_channels

    return fit_channels(built, torch.zeros(2, channels, *image_size))


def check_options(backbone: Backbone, options: Iterable[str]) -> None:
    """Refuse options the network does not have, and those that come from the data and the episode.

    Args:
        backbone: as in `build`
        options: names of options

    Raises:
        InputError: the network has no such option.

    >>> check_options("conv4", ["filters", "norm"])
    """
    entry = _REGISTRY.find(backbone)
    check_accepts(f"backbone {entry.name!r}", entry.load(), options, given=GIVEN)
