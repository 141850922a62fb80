"""Put the gain of an activation into the layer that alone reads it.

f(x) = g h(x) with g > 0 feeds a linear layer W, perhaps through dropout, pooling or flattening, which a positive factor
passes: W (g h(x)) = (g W) h(x), so W / g makes the network compute with h instead of f. Done only where the graphs
prove that the layer is the single reader, runs once, and shares its weight with nobody.
"""

import torch
import torch.nn.functional as F
from torch import fx, nn

from arelu_meta.surgery.network import MODES, Network, Part
from arelu_meta.surgery.sites import CallSite

_LINEAR = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_PASSING_LAYERS = (
    nn.Identity,
    nn.Flatten,
    nn.modules.dropout.Dropout,
    nn.modules.dropout.Dropout1d,
    nn.modules.dropout.Dropout2d,
    nn.modules.dropout.Dropout3d,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)
_PASSING_FUNCTIONS = (
    torch.flatten,
    F.dropout,
    F.max_pool2d,
    F.avg_pool2d,
    F.adaptive_avg_pool2d,
)
_PASSING_METHODS = ("flatten", "view", "reshape", "contiguous", "mean")


class Readers:
    """Find the layer into which the gain of a call site may go."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.names = {id(module): name for name, module in network.model.named_modules()}
        owners: dict[int, int] = {}
        for _, parameter in network.model.named_parameters(remove_duplicate=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
        self.own = {key for key, count in owners.items() if count == 1} - self._read_directly()

    def layer(self, site: CallSite) -> str | None:
        """Name the layer, the same in training and in evaluation; None where there is no such layer."""
        found = {self._follow(site.part, mode, node) for mode, node in site.nodes.items() if node is not None}
        return (
            found.pop()
            if len(found) == 1 and len(site.nodes) == sum(n is not None for n in site.nodes.values())
            else None
        )

    def _follow(self, part: Part, training: bool, node: fx.Node) -> str | None:
        if len(node.users) != 1:
            return None
        (user,) = node.users
        if user.op == "output":
            call = part.calls.get(training)
            whole = user.args[0] is node and part.parent is not None and call is not None
            return self._follow(part.parent, training, call) if whole and part.parent and call else None
        inner = part.children.get((training, user))
        if inner is not None:
            if node not in user.args or user.args.count(node) > 1:
                return None
            return self._follow(inner, training, inner.placeholder(training, user.args.index(node)))
        if not user.args or user.args[0] is not node or user.all_input_nodes != [node]:
            return None
        if user.op == "call_module":
            module = part.modules[str(user.target)]
            if type(module) in _LINEAR:
                return self.names[id(module)] if self._may_change(module) else None
            return self._follow(part, training, user) if isinstance(module, _PASSING_LAYERS) else None
        passing = user.target in (_PASSING_FUNCTIONS if user.op == "call_function" else _PASSING_METHODS)
        return self._follow(part, training, user) if passing else None

    def _may_change(self, layer: nn.Module) -> bool:
        free = not layer._forward_pre_hooks and id(layer.weight) in self.own
        return free and self.network.layer_calls[id(layer)] == 1

    def _read_directly(self) -> set[int]:
        """Parameters that some forward pass reads itself, past the layer that holds them."""
        found = set()
        for part in self.network.parts:
            for node in (node for mode in MODES for node in part.nodes(mode) if node.op == "get_attr"):
                home, _, leaf = str(node.target).rpartition(".")
                found.add(id(getattr(part.module.get_submodule(home), leaf)))
        return found
