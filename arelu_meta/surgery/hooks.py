"""Hooks on what a swap replaces: they go along with a module that is called once, and are refused by name elsewhere."""

from collections import Counter
from collections.abc import Iterable, Sequence

from torch import nn

from arelu_meta.errors import InputError
from arelu_meta.kernels.module_internals import has_call_hooks, has_state_hooks
from arelu_meta.surgery.sites import CallSite


def check_hooks(
    model: nn.Module, sites: Sequence[CallSite], chosen: Iterable[CallSite], written_in: Iterable[nn.Module]
) -> None:
    """Refuse a swap that would lose hooks.

    Args:
        model: the network
        sites: all its call sites
        chosen: those that are replaced
        written_in: blocks that become a piece of the forward pass around them, and are called no more

    Raises:
        InputError: hooks on a module with several calls, on a state dict, or on a block that is called no more.
    """
    names = {id(module): name for name, module in model.named_modules()}
    places = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    calls = Counter(id(site.module) for site in sites)
    for module in [site.module for site in chosen if site.module is not None]:
        name, count = names[id(module)], max(calls[id(module)], places[id(module)])
        if has_state_hooks(module):
            raise InputError(f"`{name}` has hooks on its state dict; remove them, and swap then")
        if has_call_hooks(module) and count > 1:
            raise InputError(
                f"`{name}` has hooks and {count} calls, which become modules of their own; "
                "remove the hooks, swap, and register them on the new modules"
            )
    for block in written_in:
        if has_call_hooks(block):
            raise InputError(
                f"`{names[id(block)]}` has hooks and runs several times, so that its forward pass is written into the "
                "block around it; remove the hooks, and swap then"
            )
