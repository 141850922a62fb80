"""Features of any network: what its classifier is given, (N, d), as a network that can be called, traced and stored."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.backbones.classifier_head import find_head
from arelu_meta.errors import InputError, first_line


class FeatureNetwork(nn.Module):
    """A network up to its classifier: images (N, C, H, W) to features (N, d).

    Args:
        network: the whole network, which is kept as it is
        way: `forward_head` (timm's own), `features` (a method of the network), or `input` of the layer `head`
        head: path of the classifier, for `input`
    """

    def __init__(self, network: nn.Module, way: str, head: str = "") -> None:
        super().__init__()
        self.network, self.way, self.head = network, way, head

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of x; maps (N, d, h, w) are averaged over their places."""
        network: Any = self.network
        if self.way == "forward_head":
            features: Tensor = network.forward_head(network.forward_features(x), pre_logits=True)
        elif self.way == "features":
            features = network.features(x)
        else:
            features = self._classifier_input(x)
        return features.mean((2, 3)) if features.dim() == 4 else features

    def extra_repr(self) -> str:
        """Say how the features are taken."""
        return " of ".join(filter(None, (self.way, self.head)))

    def _classifier_input(self, x: Tensor) -> Tensor:
        """Run the whole network and keep what the classifier is given."""
        given: list[Tensor] = []
        layer = self.network.get_submodule(self.head)
        hook = layer.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
        try:
            self.network(x)
        finally:
            hook.remove()
        return given[0]


@torch.no_grad()
def feature_network(network: nn.Module, x: Tensor, *, head: str = "") -> FeatureNetwork:
    """Find out how a network gives features; it is left in the mode it is in.

    In this order: the layer that is named as its classifier; timm's `forward_head(..., pre_logits=True)`; a method
    `features`; the classifier that is found by running it.

    Args:
        network: the network; it is kept, not copied
        x: images that it takes, (N, C, H, W); two are enough
        head: path of its classifier, where that has to be named

    Returns:
        A network that gives (N, d).

    Raises:
        InputError: it has no layer that could be its classifier, or gives something else than (N, d).

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)).eval()
    >>> feature_network(network, torch.zeros(2, 3, 2, 2))(torch.zeros(4, 3, 2, 2)).shape
    torch.Size([4, 8])
    """
    takes = inspect.signature(getattr(network, "forward_head", network.forward)).parameters
    if head:
        found = FeatureNetwork(network, "input", find_head(network, x, named=head))
    elif hasattr(network, "forward_features") and "pre_logits" in takes:
        found = FeatureNetwork(network, "forward_head")
    elif inspect.ismethod(getattr(network, "features", None)):  # torchvision has layers of that name
        found = FeatureNetwork(network, "features")
    else:
        found = FeatureNetwork(network, "input", find_head(network, x))
    kind, modes = type(network).__name__, [(module, module.training) for module in network.modules()]
    try:
        network.eval()
        features = found(x)
    except Exception as error:  # code of anyone's may raise anything
        raise InputError(f"{kind} gives no features: {first_line(error)}; name its classifier by `head`") from error
    finally:
        for module, mode in modes:
            module.training = mode
    shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
    if not isinstance(features, Tensor) or features.dim() != 2:
        raise InputError(
            f"{kind} gives features {shape} for {len(x)} images, not (N, d); name its classifier by `head`"
        )
    return found
