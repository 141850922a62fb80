"""Start a new activation where the old one was, and say how far off it stays.

AReLU cannot be ReLU: below zero its slope is at least 0.01, and above zero it is 1 + sigmoid(beta), more than 1. The
gradient of beta has the factor sigmoid(beta) (1 - sigmoid(beta)), so the excess and the ability to learn vanish
together: at beta = -17 the excess drowns in float32 and so does the gradient. `BETA` = -8 leaves an excess of 0.00034,
thirty times smaller than what alpha = 0.01 leaves below zero, and a gradient of 0.00034 times the sum over the feature
map. Alpha starts a hair inside its interval, so it learns; a first step downwards still takes it out of the hard clamp
for good, and `clamp="straight_through"` is the option against that. Where the gain can go into the next layer (see
`FoldingTargets`) it does, and beta is free. Where the old one was ReLU6, its bound stays above the new one.

Folding: f(x) = g h(x) with g > 0 feeds a linear layer W, perhaps through dropout, pooling or flattening, which a
positive factor passes: W (g h(x)) = (g W) h(x), so W / g makes the network compute with h instead of f. Done only where
the graphs prove that the layer alone reads the activation, runs once, and shares its weight with nobody.
"""

import copy
from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from arelu_meta.activations.apl import APL
from arelu_meta.activations.arelu import ALPHA_HIGH, ALPHA_LOW, AReLU, raw_alpha
from arelu_meta.activations.arelu_channel import AReLUChannel
from arelu_meta.activations.clamped import Clamped
from arelu_meta.activations.comb import Comb, CombPaper
from arelu_meta.activations.controls import AReLUFrozen, AReLUUnit, ReLUGain
from arelu_meta.activations.rrelu import RReLU
from arelu_meta.kernels.module_internals import copy_without_hooks, has_call_hooks
from arelu_meta.surgery.activation_types import as_function
from arelu_meta.surgery.parts import Parts
from arelu_meta.surgery.reachable_code import names_in_forward
from arelu_meta.surgery.sites import CallSite
from arelu_meta.surgery.source import DYNAMIC
from arelu_meta.surgery.traced_model import MODES, TracedBlock

BETA = -8.0
RELU6_MAXIMUM = 6.0
# 0.01 in float32 is below 0.01, where the hard clamp lets no gradient through; the smooth clamp never reaches 0.01.
_MARGINS = {"hard": 1e-8, "straight_through": 1e-8, "sigmoid": 1e-3}
# f(c x) = c f(x) for c > 0: a factor may stand before or after.
_HOMOGENEOUS = (AReLU, AReLUFrozen, AReLUUnit, ReLUGain)
_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_PASSING_LAYERS = (
    *(nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)
_PASSING_FUNCTIONS = (torch.flatten, F.dropout, F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d)
_READING_ALL = {"parameters", "named_parameters", "state_dict", *DYNAMIC}
_PASSING_METHODS = ("flatten", "view", "reshape", "contiguous", "mean")


def old_slope(site: CallSite) -> Tensor:
    """Slope of the old activation below zero; 0 for those that are not made of two slopes, as ReLU is nearest."""
    module, node = site.module, site.node
    if site.activation == "prelu" and module is not None:
        return next(module.parameters()).detach().float()
    if site.activation == "leaky_relu":
        given = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return torch.tensor(float(getattr(module, "negative_slope", given)))  # type: ignore[arg-type]
    if site.activation == "rrelu" and module is not None:
        return torch.tensor((float(module.lower) + float(module.upper)) / 2)  # type: ignore[arg-type]
    return torch.tensor(0.0)


@torch.no_grad()
def start_like(new: nn.Module, slope: Tensor, options: dict[str, Any]) -> None:
    """Set the new activation to `slope` below zero and 1 above, as nearly as it can; what `options` sets stays."""
    mean = 0.0 if slope.is_meta else float(slope.mean())
    if type(new) is AReLU or isinstance(new, AReLUChannel):
        if "alpha" not in options:
            margin = _MARGINS[new.clamp]
            alpha = min(max(mean, ALPHA_LOW + margin), ALPHA_HIGH - margin)
            new.alpha.fill_(raw_alpha(alpha, new.clamp))
        if "beta" not in options:
            new.beta.fill_(BETA)
    elif isinstance(new, nn.PReLU) and "init" not in options:
        new.weight.copy_(
            slope.expand_as(new.weight) if slope.numel() in (1, new.weight.numel()) else torch.tensor(mean)
        )
    elif isinstance(new, nn.LeakyReLU) and "negative_slope" not in options:
        new.negative_slope = mean
    elif isinstance(new, RReLU) and not {"lower", "upper"} & options.keys():
        new.lower = new.upper = mean
    elif isinstance(new, ReLUGain) and "gain" not in options:
        new.gain = 1.0
    elif isinstance(new, APL) and mean == 0.0:
        new.slopes.zero_()
    elif isinstance(new, Comb):
        new.shares.copy_(torch.tensor([mean, 1 - mean]))
    elif isinstance(new, CombPaper):
        new.share.fill_(mean)


@torch.no_grad()
def gain(new: nn.Module) -> float | None:
    """Slope above zero of an activation that a positive factor may pass through; None for any other."""
    if not isinstance(new, _HOMOGENEOUS) or isinstance(new, Clamped):
        return None
    return float(copy.deepcopy(new).double()(torch.ones(1, dtype=torch.float64)))


@torch.no_grad()
def residual(new: nn.Module, site: CallSite, scale: float = 1.0) -> float | None:
    """Largest |scale new(x) - old(x)| / |x| for 0.001 <= |x| <= 1000; None where the old one cannot be evaluated.

    Two piecewise linear functions through zero differ by no more than this times |x| anywhere.
    """
    old = as_function(site.node, site.block.modules)
    if old is None:
        return None
    channels = 1
    if isinstance(old, nn.Module):
        parameters = list(old.parameters())
        if any(parameter.is_meta for parameter in parameters):
            return None
        channels = max((parameter.numel() for parameter in parameters), default=1)
        old = copy_without_hooks(old).cpu().double().eval().forward
    sizes = torch.logspace(-3, 3, 601, dtype=torch.float64)
    x = torch.cat([-sizes.flip(0), sizes])[:, None].expand(-1, channels)
    result = copy.deepcopy(new).double().eval()(x.clone())
    return float(((scale * result - old(x.clone())).abs() / x.abs()).max())


class FoldingTargets:
    """Find the layer into which the gain of a call site may go."""

    def __init__(self, model: nn.Module, parts: Parts) -> None:
        self.names = {id(module): name for name, module in model.named_modules()}
        owners = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
        self.own = {key for key, count in owners.items() if count == 1}
        self.calls = sum((traced.layer_calls for traced in parts.traced), Counter[int]())
        self.blocks = {id(site.block) for part in parts.proved if part.foldable for site in part.sites}
        # Names in code that no trace follows, which may call or read a layer that has such a name.
        self.named_outside = set[str]().union(*(names_in_forward(block) for block in parts.unproved))
        # Parameters that some forward pass reads itself, past the layer that holds them.
        for block in (block for traced in parts.traced for block in traced.blocks):
            for node in (node for mode in MODES for node in block.nodes(mode) if node.op == "get_attr"):
                home, _, leaf = str(node.target).rpartition(".")
                # A constant that `forward` makes is an attribute of the trace only.
                self.own.discard(id(getattr(block.module.get_submodule(home), leaf, None)))

    def layer(self, site: CallSite) -> str | None:
        """Name the layer, the same in training and in evaluation; None where there is no such layer."""
        if self.named_outside & _READING_ALL or id(site.block) not in self.blocks:
            return None
        if site.module is not None and has_call_hooks(site.module):
            return None
        nodes = [(mode, node) for mode, node in site.nodes.items() if node is not None]
        layers = {self._follow(site.block, mode, node) for mode, node in nodes}
        layer = layers.pop() if len(layers) == 1 and len(nodes) == len(site.nodes) else None
        return None if layer is None or layer.rpartition(".")[2] in self.named_outside else layer

    def _follow(self, block: TracedBlock, training: bool, node: fx.Node) -> str | None:
        """Go from reader to reader, into and out of blocks, as long as there is one and a factor passes it."""
        if len(node.users) != 1:
            return None
        (user,) = node.users
        if user.op == "output":
            call = block.calls.get(training)
            if user.args[0] is not node or block.parent is None or call is None or has_call_hooks(block.module):
                return None
            return self._follow(block.parent, training, call)
        inner = block.children.get((training, user))
        if inner is not None:
            if user.args.count(node) != 1 or has_call_hooks(inner.module):
                return None
            arguments = [found for found in inner.nodes(training) if found.op == "placeholder"]
            return self._follow(inner, training, arguments[user.args.index(node)])
        if not user.args or user.args[0] is not node or user.all_input_nodes != [node]:
            return None
        if user.op == "call_module":
            module = block.modules[str(user.target)]
            if type(module) in _LINEAR:
                alone = id(module.weight) in self.own and self.calls[id(module)] == 1
                return self.names[id(module)] if alone and not has_call_hooks(module) else None
            passing = isinstance(module, _PASSING_LAYERS) and not has_call_hooks(module)
        else:
            passing = user.target in (_PASSING_FUNCTIONS if user.op == "call_function" else _PASSING_METHODS)
        return self._follow(block, training, user) if passing else None
