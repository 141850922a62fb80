"""Networks of timm, built by timm: its names with tags, its hub, its image sizes, its heads, its conversion of weights.

`resnet18`, `vit_small_patch14_dinov2.lvd142m` (a tag names published weights), `hf-hub:ORG/NAME`, `local-dir:FOLDER`.
"""

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from arelu_meta.data.files.download import OFFLINE
from arelu_meta.errors import InputError, first_line, unknown

CHECKPOINT = "checkpoint_path"
HUBS = ("hf-hub:", "hf_hub:", "local-dir:")  # before a name that timm looks for elsewhere than among its own
FOLDER = "a folder with its config.json and model.safetensors goes in as timm/local-dir:FOLDER"


def import_timm() -> ModuleType:
    """Import timm, which is optional."""
    try:
        import timm
    except ModuleNotFoundError:
        raise InputError("timm is not installed; pip install timm, or name a torchvision network") from None
    return timm


def check_tag(bare: str) -> None:
    """Refuse a tag (`NAME.TAG`) that timm publishes no weights under."""
    name, dot, tag = bare.partition(".")
    known = import_timm().list_pretrained(f"{name}.*") if dot else []
    if dot and bare not in known:
        raise unknown(f"weights of timm/{name}:", tag, [entry.partition(".")[2] for entry in known])


def build_timm(
    bare: str,
    options: Mapping[str, Any],
    *,
    channels: int = 0,
    image_size: int = 0,
    state: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """Build a network of timm without weights.

    Args:
        bare: its name, with or without a tag, or one of a hub
        options: options of `timm.create_model`
        channels: colour channels; 0: as published
        image_size: side in pixels, for networks that are made for one (position embeddings); 0: as published
        state: the weights it will get: it has their number of classes, none where they have no classifier

    Raises:
        InputError: its configuration cannot be fetched.
    """
    asked: dict[str, Any] = {**options, **({"in_chans": channels} if channels else {})}
    if image_size:
        asked.setdefault("img_size", image_size)
    network = _create(bare, asked)
    classes = _classes_of(state, network) if state else None
    if classes is not None and classes != network.num_classes:
        network = _create(bare, {**asked, "num_classes": classes})
    return network


def convert_weights(
    bare: str, options: Mapping[str, Any], state: Mapping[str, Tensor], *, classes: int, channels: int, image_size: int
) -> nn.Module:
    """Build the network again and let timm load weights of another image size, number of channels or layout into it.

    Args:
        bare: its name
        options: options of `timm.create_model`
        state: the weights
        classes: classes of the network that `build_timm` gave
        channels: colour channels; 0: as published
        image_size: side in pixels; 0: as published

    Raises:
        RuntimeError: they do not fit, whatever timm does.
    """
    sizes = {name: value for name, value in (("in_chans", channels), ("img_size", image_size)) if value}
    asked = {**options, **sizes, "num_classes": classes}
    overlay = {"source": "", "state_dict": dict(state), "num_classes": classes, "label_offset": 0}
    return _create(bare, asked, pretrained=True, pretrained_cfg_overlay=overlay)


def head_path(network: nn.Module) -> str:
    """Path of the classifier that a network of timm names itself; empty: none, or several."""
    own: Any = getattr(network, "get_classifier", None)
    classifier = own() if own is not None else None
    if not isinstance(classifier, nn.Linear | nn.Conv2d):
        return ""
    return next((name for name, module in network.named_modules() if module is classifier), "")


def is_headless(network: nn.Module) -> bool:
    """Whether a network of timm ends with features, as DINOv2's and MAE's do, and can be given a classifier."""
    return getattr(network, "num_classes", None) == 0 and hasattr(network, "reset_classifier")


def _create(bare: str, options: Mapping[str, Any], **more: Any) -> nn.Module:
    """Call `timm.create_model`; networks that take images of any size take no `img_size`."""
    timm, asked = import_timm(), dict(options)
    if CHECKPOINT in asked:  # which timm would unpickle
        raise InputError(f"{CHECKPOINT} is no option of timm/{bare} here; give the file as `weights`")
    while True:
        try:
            if bare.startswith(HUBS[:2]) and os.environ.get(OFFLINE, "0") not in ("", "0"):
                raise OSError(f"{OFFLINE} is set")
            network: nn.Module = timm.create_model(bare, **{"pretrained": False, **more}, **asked)
            return network
        except TypeError as error:
            if "img_size" not in asked or "img_size" not in str(error):
                raise
            del asked["img_size"]
        except Exception as error:  # the hub's own errors have no common root
            if not bare.startswith(HUBS) or more:
                raise
            raise InputError(f"cannot fetch timm/{bare}: {first_line(error)}; {FOLDER}") from error


def _classes_of(state: Mapping[str, Tensor], network: nn.Module) -> int | None:
    """Classes of the classifier in some weights, 0 where they have none; None where that cannot be told."""
    config = getattr(network, "pretrained_cfg", None) or {}
    names = config.get("classifier") or ()
    for name in (names,) if isinstance(names, str) else names:
        weight = state.get(f"{name}.weight")
        return 0 if weight is None else len(weight)
    return None
