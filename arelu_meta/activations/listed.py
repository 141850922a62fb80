"""The list of activations: AReLU, those it is compared with, newer ones, and control arms. Nothing here imports torch.

A new one is a file beside this one and an entry below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from arelu_meta.errors import InputError
from arelu_meta.registry import Entry, Registry

Group = Literal["fixed", "learnable", "control", "paper", "own"]


@dataclass(frozen=True)
class ActivationEntry(Entry):
    """A named activation: trainable parameters per layer, its group, and the publication it comes from.

    Of an entry point of another package the name is known alone.
    """

    parameters: int = 0
    """trainable numbers of a layer"""
    group: Group = "own"
    """where it stands in lists: the paper's, a control, one's own, ..."""
    source: str = ""
    """publication it comes from"""
    per_channel: bool = False
    """whether a layer has numbers for each of its channels; `parameters` are then those of one channel"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """options that the name itself gives, such as the base of `elsa(gelu)`"""


def _entry(
    group: Group, name: str, target: str, parameters: int, summary: str, source: str = "", per_channel: bool = False
) -> ActivationEntry:
    return ActivationEntry(name, target, summary, parameters, group, source, per_channel)


class ActivationRegistry(Registry[ActivationEntry]):
    """Activations by name; `elsa(NAME)` and `gain_matched(NAME)` are these over any other as their base."""

    def find(self, given: Any) -> ActivationEntry:
        """Give the entry of a name, as any registry does, also of a name with a base in brackets."""
        outer, bracket, base = given.partition("(") if isinstance(given, str) else ("", "", "")
        if not bracket:
            return super().find(given)
        if outer not in OVER_A_BASE or not base.endswith(")"):
            takes = " and ".join(f"{name}(NAME)" for name in OVER_A_BASE)
            raise InputError(f"activation {given!r}: of the names in brackets there are {takes} alone")
        inner, own = self.find(base[:-1]), self[outer]
        both = own.parameters + inner.parameters
        return replace(own, name=given, parameters=both, per_channel=inner.per_channel, options={"base": base[:-1]})


_OURS = "arelu_meta.activations"
OVER_A_BASE = ("elsa", "gain_matched")
ENTRIES = (
    _entry("fixed", "celu", "torch.nn:CELU", 0, "max(0, x) + min(0, exp(x) - 1)", "Barron 2017, arXiv 1704.07483"),
    _entry("fixed", "elu", "torch.nn:ELU", 0, "x, below zero exp(x) - 1", "Clevert 2015, arXiv 1511.07289"),
    _entry("fixed", "gelu", "torch.nn:GELU", 0, "x Phi(x)", "Hendrycks 2016, arXiv 1606.08415"),
    _entry(
        "fixed", "hardswish", "torch.nn:Hardswish", 0, "x min(max(x + 3, 0), 6) / 6", "Howard 2019, arXiv 1905.02244"
    ),
    _entry("fixed", "leaky_relu", "torch.nn:LeakyReLU", 0, "x, below zero 0.01 x", "Maas 2013"),
    _entry(
        "fixed",
        "maxout",
        f"{_OURS}.maxout:Maxout",
        0,
        "largest of two linear pieces",
        "Goodfellow 2013, arXiv 1302.4389",
    ),
    _entry("fixed", "mish", "torch.nn:Mish", 0, "x tanh(log(1 + exp(x)))", "Misra 2019, arXiv 1908.08681"),
    _entry("fixed", "relu", "torch.nn:ReLU", 0, "max(0, x)", "Nair 2010"),
    _entry("fixed", "relu6", "torch.nn:ReLU6", 0, "min(max(0, x), 6)", "Krizhevsky 2010"),
    _entry("fixed", "rrelu", f"{_OURS}.rrelu:RReLU", 0, "x, below zero a random slope", "Xu 2015, arXiv 1505.00853"),
    _entry(
        "fixed",
        "selu",
        "torch.nn:SELU",
        0,
        "scaled ELU that keeps mean 0, variance 1",
        "Klambauer 2017, arXiv 1706.02515",
    ),
    _entry("fixed", "sigmoid", "torch.nn:Sigmoid", 0, "1 / (1 + exp(-x))"),
    _entry("fixed", "softplus", "torch.nn:Softplus", 0, "log(1 + exp(x))", "Glorot 2011"),
    _entry("fixed", "squared_relu", f"{_OURS}.squared:SquaredReLU", 0, "max(0, x)^2", "So 2021, arXiv 2109.08668"),
    _entry("fixed", "swish", "torch.nn:SiLU", 0, "x sigmoid(x)", "Ramachandran 2017, arXiv 1710.05941"),
    _entry("fixed", "tanh", "torch.nn:Tanh", 0, "tanh(x)"),
    _entry("learnable", "apl", f"{_OURS}.apl:APL", 2, "relu(x) + a relu(b - x)", "Agostinelli 2014, arXiv 1412.6830"),
    _entry(
        "learnable",
        "comb",
        f"{_OURS}.comb:Comb",
        2,
        "affine mix of identity, ReLU, tanh",
        "Manessi 2018, arXiv 1801.09403",
    ),
    _entry("learnable", "pau", f"{_OURS}.pau:PAU", 10, "safe rational function 5/4", "Molina 2019, arXiv 1907.06732"),
    _entry("learnable", "prelu", "torch.nn:PReLU", 1, "x, below zero a x", "He 2015, arXiv 1502.01852"),
    _entry(
        "learnable", "slaf", f"{_OURS}.slaf:SLAF", 3, "polynomial a0 + a1 x + a2 x^2", "Goyal 2019, arXiv 1906.09529"
    ),
    _entry("learnable", "star_relu", f"{_OURS}.squared:StarReLU", 2, "s max(0, x)^2 + b", "Yu 2022, arXiv 2210.13452"),
    _entry(
        "learnable",
        "swish_learned",
        f"{_OURS}.swish_learned:LearnedSwish",
        1,
        "x sigmoid(b x)",
        "Ramachandran 2017, arXiv 1710.05941",
    ),
    _entry(
        "learnable",
        "xielu",
        f"{_OURS}.xielu:XIELU",
        2,
        "a x^2 + x/2, below zero b (exp(x) - 1 - x) + x/2",
        "Huang 2024, arXiv 2411.13010",
    ),
    _entry(
        "learnable",
        "arelu",
        f"{_OURS}.arelu:AReLU",
        2,
        "(1 + sigmoid(b)) x, below zero C(a) x",
        "Chen 2020, arXiv 2006.13858",
    ),
    _entry(
        "learnable",
        "elsa",
        f"{_OURS}.elsa:ELSA",
        2,
        "sign-based attention, added to any base",
        "Chen 2020, arXiv 2006.13858",
    ),
    _entry(
        "learnable",
        "arelu_channel",
        f"{_OURS}.arelu_channel:AReLUChannel",
        2,
        "arelu with a and b for each channel",
        "Chen 2020, arXiv 2006.13858",
        per_channel=True,
    ),
    _entry(
        "learnable",
        "acon_c",
        f"{_OURS}.acon:ACONC",
        3,
        "smooth maximum of p x and q x, for each channel",
        "Ma 2021, arXiv 2009.04759",
        per_channel=True,
    ),
    _entry(
        "learnable",
        "meta_acon",
        f"{_OURS}.acon:MetaACON",
        4,
        "acon_c whose sharpness comes from the image",
        "Ma 2021, arXiv 2009.04759",
        per_channel=True,
    ),
    _entry(
        "learnable",
        "dynamic_relu",
        f"{_OURS}.dynamic_relu:DynamicReLU",
        10,
        "larger of two lines that the image chooses",
        "Chen 2020, arXiv 2003.10027",
        per_channel=True,
    ),
    _entry("control", "identity", "torch.nn:Identity", 0, "x: what the network does without an activation"),
    _entry(
        "control",
        "arelu_frozen",
        f"{_OURS}.controls:AReLUFrozen",
        0,
        "AReLU at its start, not learned: shape and gain alone",
    ),
    _entry("control", "relu_gain", f"{_OURS}.controls:ReLUGain", 0, "ReLU times 2.085, AReLU's RMS gain: gain alone"),
    _entry(
        "control",
        "arelu_unit",
        f"{_OURS}.controls:AReLUUnit",
        2,
        "AReLU over 2.085, ReLU's RMS gain: shape without gain",
    ),
    _entry("control", "gain_matched", f"{_OURS}.gain:GainMatched", 0, "any base at ReLU's RMS gain: base=NAME"),
    _entry(
        "paper", "maxout_paper", f"{_OURS}.maxout:MaxoutPaper", 0, "Maxout of one piece, as coded by Chen: identity"
    ),
    _entry("paper", "slaf_paper", f"{_OURS}.slaf:SLAFPaper", 2, "SLAF of two terms, as coded by Chen: affine"),
    _entry("paper", "comb_paper", f"{_OURS}.comb:CombPaper", 1, "mix of x and ReLU, as coded by Chen: PReLU from 0"),
)
