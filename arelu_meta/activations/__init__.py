"""Activations by name: AReLU, the 18 the paper compares it with, and control arms.

    from arelu_meta import activations

    activations.names()                              # all names
    activations.build("arelu", alpha=0.5)            # a module
    activations.factory("arelu")                     # a callable that gives a fresh module each time, for networks

A new activation is one file here and one line below (or `@activations.register("mine", parameters=1)` in code of your
own); the contract suite in `tests/activations/test_contract.py` then runs over it. Listing them imports no torch.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from arelu_meta.errors import InputError, unknown
from arelu_meta.registry import Entry, Registry, load_attribute

if TYPE_CHECKING:
    from torch import nn

Group = Literal["fixed", "learnable", "control", "paper", "own"]
Factory: TypeAlias = "Callable[[], nn.Module]"
Activation: TypeAlias = "str | type[nn.Module] | Callable[..., nn.Module]"

ACTIVATION_MARK = "activation_name"  # attribute that tells an activation from the layers around it


@dataclass(frozen=True)
class ActivationEntry(Entry):
    """A named activation: trainable parameters per layer, its group, and the publication it comes from."""

    parameters: int = 0
    group: Group = "own"
    source: str = ""


def _entry(group: Group, name: str, target: str, parameters: int, summary: str, source: str = "") -> ActivationEntry:
    target = target if ":" in target else f"torch.nn:{target}"
    target = target if "." in target else f"arelu_meta.activations.{target}"
    return ActivationEntry(name, target, summary, parameters=parameters, group=group, source=source)


_REGISTRY = Registry[ActivationEntry]("activation")
_REGISTRY.add(
    _entry("fixed", "celu", "CELU", 0, "max(0, x) + min(0, exp(x) - 1)", "Barron 2017, arXiv 1704.07483"),
    _entry("fixed", "elu", "ELU", 0, "x, below zero exp(x) - 1", "Clevert 2015, arXiv 1511.07289"),
    _entry("fixed", "gelu", "GELU", 0, "x Phi(x)", "Hendrycks 2016, arXiv 1606.08415"),
    _entry("fixed", "leaky_relu", "LeakyReLU", 0, "x, below zero 0.01 x", "Maas 2013"),
    _entry("fixed", "maxout", "maxout:Maxout", 0, "largest of two linear pieces", "Goodfellow 2013, arXiv 1302.4389"),
    _entry("fixed", "relu", "ReLU", 0, "max(0, x)", "Nair 2010"),
    _entry("fixed", "relu6", "ReLU6", 0, "min(max(0, x), 6)", "Krizhevsky 2010"),
    _entry("fixed", "rrelu", "rrelu:RReLU", 0, "x, below zero a random slope", "Xu 2015, arXiv 1505.00853"),
    _entry("fixed", "selu", "SELU", 0, "scaled ELU that keeps mean 0, variance 1", "Klambauer 2017, arXiv 1706.02515"),
    _entry("fixed", "sigmoid", "Sigmoid", 0, "1 / (1 + exp(-x))"),
    _entry("fixed", "softplus", "Softplus", 0, "log(1 + exp(x))", "Glorot 2011"),
    _entry("fixed", "swish", "SiLU", 0, "x sigmoid(x)", "Ramachandran 2017, arXiv 1710.05941"),
    _entry("fixed", "tanh", "Tanh", 0, "tanh(x)"),
    _entry("learnable", "apl", "apl:APL", 2, "relu(x) + a relu(b - x)", "Agostinelli 2014, arXiv 1412.6830"),
    _entry("learnable", "comb", "comb:Comb", 2, "affine mix of identity, ReLU, tanh", "Manessi 2018, arXiv 1801.09403"),
    _entry("learnable", "pau", "pau:PAU", 10, "safe rational function 5/4", "Molina 2019, arXiv 1907.06732"),
    _entry("learnable", "prelu", "PReLU", 1, "x, below zero a x", "He 2015, arXiv 1502.01852"),
    _entry("learnable", "slaf", "slaf:SLAF", 3, "polynomial a0 + a1 x + a2 x^2", "Goyal 2019, arXiv 1906.09529"),
    _entry(
        "learnable", "arelu", "arelu:AReLU", 2, "(1 + sigmoid(b)) x, below zero C(a) x", "Chen 2020, arXiv 2006.13858"
    ),
    _entry(
        "learnable", "elsa", "elsa:ELSA", 2, "sign-based attention, added to any base", "Chen 2020, arXiv 2006.13858"
    ),
    _entry("control", "identity", "Identity", 0, "x: what the network does without an activation"),
    _entry(
        "control", "arelu_frozen", "controls:AReLUFrozen", 0, "AReLU at its start, not learned: shape and gain alone"
    ),
    _entry("control", "relu_gain", "controls:ReLUGain", 0, "ReLU times 2.085, AReLU's RMS gain: gain alone"),
    _entry("control", "arelu_unit", "controls:AReLUUnit", 2, "AReLU over 2.085, ReLU's RMS gain: shape without gain"),
    _entry("paper", "maxout_paper", "paper_variants:MaxoutPaper", 0, "Maxout of one piece, as coded by Chen: identity"),
    _entry("paper", "slaf_paper", "paper_variants:SLAFPaper", 2, "SLAF of two terms, as coded by Chen: affine"),
    _entry("paper", "comb_paper", "paper_variants:CombPaper", 1, "mix of x and ReLU, as coded by Chen: PReLU from 0"),
)


def names(group: Group | None = None) -> list[str]:
    """Names of all activations, or of one group: fixed, learnable, control, paper, own."""
    return [entry.name for entry in _REGISTRY if group in (None, entry.group)]


def entries() -> list[ActivationEntry]:
    """All activations with parameter counts and sources."""
    return list(_REGISTRY)


def build(activation: Activation, **options: Any) -> "nn.Module":
    """Make one activation module from a name, a class, a `package.module:Class`, or a callable that gives a module.

    >>> build("arelu", alpha=0.5).alpha.item()
    0.5
    """
    from torch import nn

    name, target = _resolve(activation)
    _check_options(name, target, options)
    try:
        module = target(**options)
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError) or (not options and name in _REGISTRY):
            raise
        given = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise InputError(f"activation {name!r} cannot be made with {given or 'no options'}: {error}") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"activation {name!r} gives a {type(module).__name__}, not a torch.nn.Module")
    setattr(module, ACTIVATION_MARK, name)
    return module


def factory(activation: Activation, **options: Any) -> Factory:
    """Give a callable that makes a fresh module each time: a shared one would tie learnable parameters in silence."""
    name, target = _resolve(activation)
    _check_options(name, target, options)
    return lambda: build(activation, **options)


def register(
    name: str, *, parameters: int = 0, summary: str = "", source: str = ""
) -> Callable[[type["nn.Module"]], type["nn.Module"]]:
    """Register a module class of your own: `@activations.register("mine", parameters=1)`."""

    def add(module_class: type["nn.Module"]) -> type["nn.Module"]:
        _REGISTRY.add(ActivationEntry(name, module_class, summary, parameters=parameters, source=source))
        return module_class

    return add


def unregister(name: str) -> None:
    """Take an activation of your own out again."""
    if _REGISTRY[name].group != "own":
        raise InputError(f"activation {name!r} belongs to arelu_meta and stays registered")
    _REGISTRY.remove(name)


def _resolve(activation: Activation) -> tuple[str, Callable[..., Any]]:
    if callable(activation):
        return getattr(activation, "__name__", type(activation).__name__), activation
    if ":" in activation:
        return activation, load_attribute(activation)
    return activation, _REGISTRY[activation].load()


def _check_options(name: str, target: Callable[..., Any], options: dict[str, Any]) -> None:
    accepted = inspect.signature(target).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        return
    for option in options:
        if option not in accepted:
            raise unknown(f"option of activation {name!r}:", option, accepted)
