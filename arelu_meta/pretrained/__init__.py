"""Networks of others with the weights they come with: by name, with a head for other classes and other activations.

from arelu_meta.pretrained import assemble

made = assemble("resnet18", weights="DEFAULT", images=my_images, activation="arelu", preserve=True)
made.network, made.inputs, made.report
"""

from arelu_meta.pretrained.assembly import Assembled, assemble
from arelu_meta.pretrained.classifier_head import find_head, replace_head
from arelu_meta.pretrained.networks import build_network, find_model
from arelu_meta.pretrained.weights import Weights, load_weights, read_weights

__all__ = [
    "Assembled",
    "Weights",
    "assemble",
    "build_network",
    "find_head",
    "find_model",
    "load_weights",
    "read_weights",
    "replace_head",
]
