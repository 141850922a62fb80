"""Activations by name: AReLU, the 18 the paper compares it with, newer ones, and control arms.

    from arelu_meta import activations

    activations.names()                              # all names
    activations.build("arelu", alpha=0.5)            # a module
    activations.build("gain_matched(gelu)")          # over a base: elsa(NAME), gain_matched(NAME)
    activations.factory("arelu")                     # a callable that gives a fresh module each time, for networks

A new activation is one file here and one entry in `listed.py`; the contract suite then runs over it. One
of your own is `@activations.register("mine", parameters=1)`, `package.module:Class`, or an entry point of a package in
the group `arelu_meta.activations` (docs/extending.md). Listing them imports no torch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from arelu_meta.activations.listed import ENTRIES, ActivationEntry, ActivationRegistry, Group
from arelu_meta.errors import InputError
from arelu_meta.registry import check_accepts

if TYPE_CHECKING:
    from torch import nn

Factory: TypeAlias = "Callable[[], nn.Module]"
Activation: TypeAlias = "str | type[nn.Module] | Callable[..., nn.Module]"

__all__ = ["Activation", "ActivationEntry", "Factory", "build", "entries", "factory", "names", "register"]

ACTIVATION_MARK = "activation_name"  # attribute that tells an activation from the layers around it


_REGISTRY = ActivationRegistry("activation", ActivationEntry, group="arelu_meta.activations")
_REGISTRY.add(*ENTRIES)


def names(group: Group | None = None) -> list[str]:
    """Names of all activations, or of one group.

    Args:
        group: "fixed", "learnable", "control", "paper" (as coded by the authors of AReLU), "own" (registered by you or
            by another package); None: all

    Returns:
        Names that `build` takes.

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

    name, target, options = _resolve(activation, options)
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

    Returns:
        A decorator that gives back what it is given.

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


def is_composed(name: str) -> bool:
    """Whether a name is that of an activation over another, such as `elsa(gelu)`.

    Args:
        name: any name

    Raises:
        InputError: it has brackets, and means nothing.

    >>> is_composed("gain_matched(mish)"), is_composed("mish")
    (True, False)
    """
    return "(" in name and bool(_REGISTRY.find(name))


def _resolve(activation: Activation, options: dict[str, Any]) -> tuple[str, Callable[..., Any], dict[str, Any]]:
    """Give name, implementation and all options; refuse options that it does not take."""
    entry = _REGISTRY.find(activation)
    target, both = entry.load(), {**options, **entry.options}
    check_accepts(f"activation {entry.name!r}", target, both)
    return entry.name, target, both
