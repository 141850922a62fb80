"""Read weights from a file, a publisher or MLflow, and put them into a network. No code in a file is run."""

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from arelu_meta.data.files.download import OFFLINE
from arelu_meta.data.inputs import Inputs, from_metadata
from arelu_meta.errors import InputError, first_line, unknown
from arelu_meta.pretrained.installed import PREFIX as INSTALLED
from arelu_meta.pretrained.installed import find_installed, in_hub_cache
from arelu_meta.pretrained.networks import SIDE_OUTPUTS, ModelSource
from arelu_meta.pretrained.timm_networks import HUBS, import_timm
from arelu_meta.reading import check_members, check_pickle, open_regular, parsing, shown
from arelu_meta.store.downloads import download_model

WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "state_dict_ema")  # keys that checkpoints nest under
PREFIXES = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before every name
COUNTER = "num_batches_tracked"  # files from before torch 0.4.1 have none


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors by name, where they came from, and what images they were trained on where the file says so."""

    source: str
    """file, published name or MLflow URI"""
    state: Mapping[str, Tensor] = field(default_factory=dict)
    """tensors by name"""
    inputs: Inputs | None = None
    """images they were trained on; None where nobody says"""

    @property
    def digest(self) -> str:
        """SHA-256 over names and values."""
        sha = hashlib.sha256()
        for name in sorted(self.state):
            sha.update(name.encode())
            sha.update(self.state[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return sha.hexdigest()


def read_weights(source: str, *, model: ModelSource) -> Weights:
    """Read weights; no code in a file is run.

    Args:
        source: a .safetensors file, a .pth file of tensors alone, an MLflow URI, or the name of weights that are
            published with the model (DEFAULT: the newest); "none": no weights
        model: the network they are for, from `find_model`

    Returns:
        Tensors by name, and what images they were trained on where the file says so.

    Raises:
        InputError: there is no such file, or it holds more than tensors; nothing of that name is published.

    >>> from arelu_meta.pretrained.networks import find_model
    >>> len(read_weights("none", model=find_model("resnet18")).state)
    0
    """
    if source == "none":
        return Weights(source)
    path = Path(source).expanduser()
    if ":/" in source:
        place = download_model(source)
        files = sorted(place.rglob("*.safetensors")) if place.is_dir() else [place]
        if len(files) != 1:
            raise InputError(
                f"{source} holds {len(files)} safetensors files, not one; name the file: {source}/PATH.safetensors"
            )
        return replace(_from_file(files[0]), source=source)
    if path.is_file():
        return _from_file(path)
    check_named_file(source)
    if model.family == INSTALLED:
        if source != "DEFAULT":
            raise unknown(f"weights of {model.name}:", source, ["DEFAULT"])
        return _from_file(find_installed(model.bare).weights or path)
    return Weights(source, _published(source, model))


def check_named_file(source: str) -> None:
    """Refuse a file of weights that is not there; to be called before images are read and networks built.

    >>> check_named_file("DEFAULT")
    """
    path = Path(source).expanduser()
    if ":/" not in source and (path.suffix or len(path.parts) > 1) and not path.is_file():
        raise InputError(f"no weights file {source!r}; check the path, or give DEFAULT for published weights")


def load_weights(network: nn.Module, weights: Weights, *, model: str, head: str) -> None:
    """Put weights into a network; the head's are left out where the file has other classes, all others must fit.

    Args:
        network: the network, changed in place
        weights: what `read_weights` gives
        model: bare name of the network, for side outputs that published weights have and the network has not
        head: path of its head

    Raises:
        InputError: a tensor is missing, unknown, or of another shape; the network is then as it was.
    """
    skipped = SIDE_OUTPUTS.get(model, ())
    state = {name: value for name, value in weights.state.items() if not name.startswith(skipped)}
    own = network.state_dict()
    for name in {f"{head}.weight", f"{head}.bias"} & state.keys() & own.keys():
        if state[name].shape[1:] == own[name].shape[1:]:
            state[name] = state[name] if state[name].shape == own[name].shape else own[name]
    missing = [name for name in own if name not in state and not name.endswith(COUNTER)]
    foreign = [name for name in state if name not in own]
    shapes = [name for name in own if name in state and state[name].shape != own[name].shape]
    sizes = ["x".join(map(str, tensors[name].shape)) or "a number" for name in shapes for tensors in (state, own)]
    problems = [
        [f"{name} is {sizes[2 * i]} there and {sizes[2 * i + 1]} here" for i, name in enumerate(shapes)],
        [f"{name!r} is missing" for name in missing],
        [f"{name!r} is not in the network" for name in foreign],
    ]
    first = [kind[0] for kind in problems if kind]
    if first:
        left = sum(map(len, problems)) - len(first)
        more = f" (and {left} more)" if left else ""
        other = "" if shapes or missing else "; for another activation of its own, `model_options` activation=NAME"
        raise InputError(f"{weights.source} holds no weights of {model}: {'; '.join(first)}{more}{other}")
    network.load_state_dict({**own, **state})


def _from_file(path: Path) -> Weights:
    with parsing(path, remedy="fetch it anew"):
        open_regular(path).close()
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata()
            return Weights(str(path), load_file(path), from_metadata(metadata))
        except Exception as error:
            reason = shown(first_line(error))
            raise InputError(f"{path} is not a readable safetensors file ({reason}); download it anew") from error
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                check_members(path, archive, packed=path.stat().st_size)
                for name in archive.namelist():
                    if name.endswith("/data.pkl"):
                        check_pickle(archive.read(name), path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(
            f"{path} is refused: it holds more than tensors, or is no checkpoint ({type(error).__name__}); "
            "no code in it was run; save its state_dict() alone, best as .safetensors"
        ) from error
    return Weights(str(path), _unwrapped(content, path))


def _unwrapped(content: Any, path: Path) -> dict[str, Tensor]:
    """Find the tensors in a checkpoint that nests them, and drop the prefix of wrappers."""
    for key in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not content:
        raise InputError(f"{path} holds a {type(content).__name__}; save the state_dict() of a network")
    for name, value in content.items():
        if not isinstance(name, str):
            raise InputError(f"{path}: {name!r:.80} is no name of a tensor; save the state_dict() alone")
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            raise InputError(f"{path}: {name!r} is {value.layout}; save it dense")
        if not isinstance(value, Tensor):
            raise InputError(f"{path}: {name!r} is a {type(value).__name__}, not a tensor; save the state_dict() alone")
    state = dict(content)
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _published(name: str, model: ModelSource) -> dict[str, Tensor]:
    """Download weights that torchvision or timm publishes, or take them from the publisher's cache."""
    if model.family not in ("torchvision", "timm"):
        raise InputError(
            f"no weights are published with {model.name}; give a .safetensors or .pth file, or an MLflow URI"
        )
    if model.family == "timm":
        bare, timm = model.bare, import_timm()
        if bare.startswith(HUBS):
            if name != "DEFAULT":
                raise unknown(f"weights of {model.name}:", name, ["DEFAULT"])
            here = bare.startswith(HUBS[2])
            return _download(bare, lambda: timm.create_model(bare, pretrained=True).state_dict(), cached=here)
        tag = bare if name == "DEFAULT" else f"{bare.partition('.')[0]}.{name}"
        known = timm.list_pretrained(f"{bare.partition('.')[0]}.*")
        if name != "DEFAULT" and tag not in known:
            raise unknown(f"weights of timm/{bare}:", name, [entry.partition(".")[2] for entry in known])
        default = timm.get_pretrained_cfg(tag)  # a name without a tag stands for one with
        cached = in_hub_cache(f"{tag.partition('.')[0]}.{default.tag}" if default is not None else tag)
        return _download(tag, lambda: timm.create_model(tag, pretrained=True).state_dict(), cached=cached)
    from torchvision import models

    published = models.get_model_weights(model.bare).__members__
    if name not in published:
        raise unknown(f"weights of {model.name}:", name, published)
    chosen = published[name]
    cached = Path(torch.hub.get_dir()) / "checkpoints" / chosen.url.rpartition("/")[2]
    return _download(
        chosen.url, lambda: chosen.get_state_dict(progress=False, check_hash=True), cached=cached.is_file()
    )


def _download(name: str, load: Callable[[], Mapping[str, Tensor]], *, cached: bool = False) -> dict[str, Tensor]:
    """Let a publisher's library load its weights; offline it may only do so from its cache."""
    try:
        if not cached and os.environ.get(OFFLINE, "0") not in ("", "0"):
            raise OSError(f"{OFFLINE} is set")
        return dict(load())
    except Exception as error:  # the hubs' own errors have no common root
        raise InputError(
            f"cannot download {name}: {first_line(error)}; fetch it elsewhere and give the file as `weights`"
        ) from error
