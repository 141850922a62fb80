"""Networks of others with the weights they come with: by name, with a head for other classes and other activations.

from arelu_meta.pretrained import assemble

made = assemble("resnet18", weights="DEFAULT", images=my_images, activation="arelu", preserve=True)
made.network, made.inputs, made.report

The names are loaded when they are first used, so that listing what is installed imports no torch.
"""

import importlib
from typing import Any

_MODULES = {
    "Assembled": "assembly",
    "FeatureNetwork": "features",
    "Weights": "weights",
    "assemble": "assembly",
    "build_network": "networks",
    "feature_network": "features",
    "find_head": "classifier_head",
    "find_model": "networks",
    "load_weights": "weights",
    "read_weights": "weights",
    "replace_head": "classifier_head",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'arelu_meta.pretrained' has no attribute {name!r}")
    return getattr(importlib.import_module(f"arelu_meta.pretrained.{_MODULES[name]}"), name)
