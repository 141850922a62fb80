"""Networks by name: torchvision's, timm's, ours, or what a function of your own builds.

`resnet18` is torchvision's; `timm/resnet18` and `arelu_meta/resnet18` are the others of that name. A name that
torchvision does not have is looked for among ours, then in timm.
"""

import difflib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError, first_line
from arelu_meta.registry import load_attribute

# Side outputs that are for training from scratch; published weights have them.
SIDE_OUTPUTS = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}


def family(name: str) -> str:
    """Tell where a network comes from: torchvision, timm, arelu_meta or function; an unknown name is refused."""
    if ":" in name:
        return "function"
    prefix, slash, bare = name.rpartition("/")
    known = {"torchvision": torchvision_names, "arelu_meta": _our_names, "timm": timm_names}
    if slash and prefix not in known:
        raise InputError(f"model {name!r}: give NAME, timm/NAME, arelu_meta/NAME or package.module:function")
    if prefix == "timm":
        timm()
    places = [prefix] if slash else list(known)
    for place in places:
        if bare in known[place]():
            return place
    raise InputError(f"unknown model {name!r}; {_near(bare, {place: known[place]() for place in places})}")


def build(name: str, options: Mapping[str, Any], *, images: ImageSet, state: Mapping[str, Tensor]) -> nn.Module:
    """Build a network without weights; ours are made for the images, with the channels of the weights' first layer."""
    place, bare = family(name), name.rpartition("/")[2]
    options = dict(options)
    try:
        if place == "torchvision":
            return _torchvision(bare, options, pretrained=bool(state))
        if place == "timm":
            return timm().create_model(bare, pretrained=False, **options)
        if place == "arelu_meta":
            return _ours(bare, options, images, state)
        made = load_attribute(name)(**options)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        given = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "no options"
        raise InputError(f"{name} cannot be built with {given}: {first_line(error)}; see --model-options") from error
    if not isinstance(made, nn.Module):
        raise InputError(f"{name} gives a {type(made).__name__}, not a torch.nn.Module; name a builder")
    return made


def torchvision_names() -> list[str]:
    """Names of torchvision's classifiers."""
    from torchvision import models

    return models.list_models(module=models)


def timm_names() -> list[str]:
    """Names of timm's networks; none where it is not installed."""
    try:
        return timm().list_models()
    except InputError:
        return []


def timm() -> ModuleType:
    """Import timm, which is optional."""
    try:
        import timm as found
    except ModuleNotFoundError:
        raise InputError("timm is not installed; pip install timm, or name a torchvision network") from None
    return found


def _our_names() -> list[str]:
    return backbones.names("classification")


def _torchvision(name: str, options: dict[str, Any], *, pretrained: bool) -> nn.Module:
    from torchvision import models

    if name in SIDE_OUTPUTS:
        options = {"aux_logits": False, "init_weights": False, "transform_input": pretrained, **options}
    return models.get_model(name, weights=None, **options)


def _ours(name: str, options: dict[str, Any], images: ImageSet, state: Mapping[str, Tensor]) -> nn.Module:
    kernels = (value for value in state.values() if value.dim() == 4)
    channels = next((kernel.shape[1] for kernel in kernels), images.channels)
    activation = activations.factory(options.pop("activation", "relu"))
    classes = len(images.class_names)
    return backbones.build(
        name, activation=activation, channels=channels, image_size=images.image_size, classes=classes, **options
    )


def _near(name: str, known: Mapping[str, list[str]]) -> str:
    """Suggest up to three names; a thousand of them would be no help."""
    owners = {bare: place for place in reversed(list(known)) for bare in known[place]}
    near = difflib.get_close_matches(name.lower(), owners, n=3)
    shown = [f"{bare!r}" if owners[bare] != "timm" else f"'timm/{bare}'" for bare in near]
    missing = "" if known.get("timm", True) else " (timm is not installed)"
    return f"did you mean {' or '.join(shown)}?{missing}" if near else f"see torchvision.models.list_models(){missing}"
