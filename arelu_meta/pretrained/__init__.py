"""Networks of others with the weights they come with: by name, with a head for other classes and other activations.

from arelu_meta.pretrained import assemble

made = assemble("resnet18", weights="DEFAULT", images=my_images, activation="arelu", preserve=True)
made.network, made.inputs, made.report

The names are loaded when they are first used, so that listing what is installed imports no torch.
"""

import importlib
from typing import Any

_MODULES = {
    "Assembled": "pretrained.assembly",
    "FeatureNetwork": "backbones.features",
    "Weights": "pretrained.weights",
    "assemble": "pretrained.assembly",
    "build_network": "pretrained.networks",
    "feature_network": "backbones.features",
    "find_head": "backbones.classifier_head",
    "find_model": "pretrained.networks",
    "load_weights": "pretrained.weights",
    "read_weights": "pretrained.weights",
    "replace_head": "backbones.classifier_head",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'arelu_meta.pretrained' has no attribute {name!r}")
    return getattr(importlib.import_module(f"arelu_meta.{_MODULES[name]}"), name)
