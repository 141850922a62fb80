"""Start a new activation where the old one was, and say how far off it stays.

AReLU cannot be ReLU: below zero its slope is at least 0.01, and above zero it is 1 + sigmoid(beta), more than 1. The
gradient of beta has the factor sigmoid(beta) (1 - sigmoid(beta)), so the excess and the ability to learn vanish
together: at beta = -17 the excess drowns in float32 and so does the gradient. `BETA` = -8 leaves an excess of 0.00034,
thirty times smaller than what alpha = 0.01 leaves below zero, and a gradient of 0.00034 times the sum over the feature
map. Alpha starts a hair inside its interval, so it learns; a first step downwards still takes it out of the hard clamp
for good, and `clamp="straight_through"` is the option against that. Where the gain can go into the next layer (see
`folding`) it does, and beta is free. Where the old one was ReLU6, its bound stays above the new one.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from arelu_meta.activations.apl import APL
from arelu_meta.activations.arelu import ALPHA_HIGH, ALPHA_LOW, AReLU, raw_alpha
from arelu_meta.activations.capped import Capped
from arelu_meta.activations.comb import Comb
from arelu_meta.activations.controls import AReLUFrozen, AReLUUnit, ReLUGain
from arelu_meta.activations.paper_variants import CombPaper
from arelu_meta.activations.rrelu import RReLU

BETA = -8.0
RELU6_CAP = 6.0
# 0.01 in float32 is below 0.01, where the hard clamp lets no gradient through; the smooth clamp never reaches 0.01.
_MARGINS = {"hard": 1e-8, "straight_through": 1e-8, "sigmoid": 1e-3}
# f(c x) = c f(x) for c > 0: a factor may stand before or after.
_HOMOGENEOUS = (AReLU, AReLUFrozen, AReLUUnit, ReLUGain)


def old_slope(module: nn.Module | None, node: fx.Node, kind: str) -> Tensor:
    """Slope of the old activation below zero; 0 for those that are not made of two slopes, as ReLU is nearest."""
    if kind == "prelu" and module is not None:
        return next(module.parameters()).detach().float()
    if kind == "leaky_relu":
        given = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return torch.tensor(float(getattr(module, "negative_slope", given)))  # type: ignore[arg-type]
    if kind == "rrelu" and module is not None:
        return torch.tensor((float(module.lower) + float(module.upper)) / 2)  # type: ignore[arg-type]
    return torch.tensor(0.0)


@torch.no_grad()
def start_like(new: nn.Module, slope: Tensor, options: dict[str, Any]) -> None:
    """Set the new activation to `slope` below zero and 1 above, as nearly as it can; what `options` sets stays."""
    mean = 0.0 if slope.is_meta else float(slope.mean())
    if type(new) is AReLU:
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


def capped_like(new: nn.Module, kind: str) -> nn.Module:
    """Keep the bound of ReLU6: without it the signal of a trained network grows from layer to layer."""
    return Capped(new, RELU6_CAP) if kind == "relu6" else new


@torch.no_grad()
def gain(new: nn.Module) -> float | None:
    """Slope above zero of an activation that a positive factor may pass through; None for any other."""
    if not isinstance(new, _HOMOGENEOUS):
        return None
    return float(copy.deepcopy(new).double()(torch.ones(1, dtype=torch.float64)))


@torch.no_grad()
def residual(new: nn.Module, old: Callable[[Tensor], Tensor] | None, scale: float = 1.0) -> float | None:
    """Largest |scale new(x) - old(x)| / |x| for 0.001 <= |x| <= 1000; None where the old one cannot be evaluated.

    Two piecewise linear functions through zero differ by no more than this times |x| anywhere.
    """
    if old is None:
        return None
    channels = 1
    if isinstance(old, nn.Module):
        parameters = list(old.parameters())
        if any(parameter.is_meta for parameter in parameters):
            return None
        channels = max((parameter.numel() for parameter in parameters), default=1)
        old = copy.deepcopy(old).cpu().double().eval()
    sizes = torch.logspace(-3, 3, 601, dtype=torch.float64)
    x = torch.cat([-sizes.flip(0), sizes])[:, None].expand(-1, channels)
    found = copy.deepcopy(new).double().eval()(x.clone())
    return float(((scale * found - old(x.clone())).abs() / x.abs()).max())
