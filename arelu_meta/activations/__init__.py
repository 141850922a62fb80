"""Activations by name: AReLU, the 18 the paper compares it with, newer ones, and control arms.

    from arelu_meta import activations

    activations.names()                              # all names
    activations.build("arelu", alpha=0.5)            # a module
    activations.factory("arelu")                     # a callable that gives a fresh module each time, for networks

A new activation is one file here and one line below; the contract suite in `tests/activations/test_contract.py` then
runs over it. One of your own is `@activations.register("mine", parameters=1)`, `package.module:Class`, or an entry
point of a package in the group `arelu_meta.activations` (docs/extending.md). Listing them imports no torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from arelu_meta.errors import InputError
from arelu_meta.registry import Entry, Registry, check_accepts

if TYPE_CHECKING:
    from torch import nn

Group = Literal["fixed", "learnable", "control", "paper", "own"]
Factory: TypeAlias = "Callable[[], nn.Module]"
Activation: TypeAlias = "str | type[nn.Module] | Callable[..., nn.Module]"

__all__ = ["Activation", "ActivationEntry", "Factory", "build", "entries", "factory", "names", "register"]

ACTIVATION_MARK = "activation_name"  # attribute that tells an activation from the layers around it


@dataclass(frozen=True)
class ActivationEntry(Entry):
    """A named activation: trainable parameters per layer, its group, and the publication it comes from.

    Of an entry point of another package the name is known alone.
    """

    parameters: int = 0
    group: Group = "own"
    source: str = ""
    per_channel: bool = False
    """whether a layer has numbers for each of its channels; `parameters` are then those of one channel"""


def _entry(
    group: Group, name: str, target: str, parameters: int, summary: str, source: str = "", per_channel: bool = False
) -> ActivationEntry:
    return ActivationEntry(name, target, summary, parameters, group, source, per_channel)


_OURS = "arelu_meta.activations"
_REGISTRY = Registry("activation", ActivationEntry, group="arelu_meta.activations")
_REGISTRY.add(
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


def names(group: Group | None = None) -> list[str]:
    """Names of all activations, or of one group.

    Args:
        group: "fixed", "learnable", "control", "paper" (as coded by the authors of AReLU), "own" (registered by you or
            by another package); None: all

    >>> names("control")
    ['identity', 'arelu_frozen', 'relu_gain', 'arelu_unit', 'gain_matched']
    """
    return [entry.name for entry in _REGISTRY if group in (None, entry.group)]


def entries() -> list[ActivationEntry]:
    """All activations with parameter counts and sources.

    >>> [entry.parameters for entry in entries() if entry.name == "arelu"]
    [2]
    """
    return list(_REGISTRY)


def build(activation: Activation, **options: Any) -> "nn.Module":
    """Make one activation module.

    Args:
        activation: a name, a module class, `package.module:Class`, or a callable that gives a module
        options: options of the activation, such as `alpha` of arelu

    Returns:
        A new module, which the toolkit tells from other layers by its attribute `activation_name`.

    Raises:
        InputError: an unknown name or option, or what is made is no `torch.nn.Module`.

    >>> build("arelu", alpha=0.5).alpha.item()
    0.5
    """
    from torch import nn

    name, target = _resolve(activation, options)
    try:
        module = target(**options)
    except (InputError, RuntimeError, OSError, MemoryError):  # no matter of the options; the next try may do
        raise
    except Exception as error:  # code of anyone's may raise anything
        given = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise InputError(f"activation {name!r} cannot be made with {given or 'no options'}: {error}") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"activation {name!r} gives a {type(module).__name__}, not a torch.nn.Module")
    setattr(module, ACTIVATION_MARK, name)
    return module


def factory(activation: Activation, **options: Any) -> Factory:
    """Give a callable that makes a fresh module each time: a shared one would tie learnable parameters in silence.

    Args:
        activation: as in `build`
        options: as in `build`

    Returns:
        A callable without arguments, as backbones take it.

    Raises:
        InputError: an unknown name or option; at once, not when the network is built.

    >>> make = factory("prelu", init=0.1)
    >>> make() is make()
    False
    """
    _resolve(activation, options)
    return lambda: build(activation, **options)


def register(
    name: str, *, parameters: int = 0, summary: str = "", source: str = ""
) -> Callable[[type["nn.Module"]], type["nn.Module"]]:
    """Register a module class of your own under a name, as a decorator.

    Args:
        name: the name that `build`, task files and flags take
        parameters: trainable parameters per layer
        summary: what it computes, in one line
        source: the publication it comes from

    Raises:
        InputError: the name is registered already.

    >>> from torch import nn
    >>> @register("halved", summary="x / 2")
    ... class Halved(nn.Module):
    ...     def forward(self, x):
    ...         return x / 2
    >>> names("own")
    ['halved']
    >>> _REGISTRY.remove("halved")
    """

    def add(module_class: type["nn.Module"]) -> type["nn.Module"]:
        _REGISTRY.add(ActivationEntry(name, module_class, summary, parameters, source=source))
        return module_class

    return add


def _resolve(activation: Activation, options: dict[str, Any]) -> tuple[str, Callable[..., Any]]:
    """Give name and implementation; refuse options that it does not take."""
    entry = _REGISTRY.find(activation)
    target = entry.load()
    check_accepts(f"activation {entry.name!r}", target, options)
    return entry.name, target
