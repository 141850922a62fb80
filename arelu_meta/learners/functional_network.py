"""A network as a pure function of its parameters: whatever its forward pass does, the network stays as it was."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.func import functional_call

from arelu_meta.backbones.norm import BATCH_NORMS
from arelu_meta.errors import InputError
from arelu_meta.kernels.episode_operations import ExactOperations
from arelu_meta.learners.known_layers import EXACT_BY_KERNELS, is_known

Parameters: TypeAlias = dict[str, Tensor]
_LOCKS: WeakKeyDictionary[nn.Module, AbstractContextManager[object]] = WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


class FunctionalNetwork:
    """Call a network with other parameters than its own.

    Parameters are found by identity: a module that has two names is given its tensors once, a tensor that two modules
    share goes to both. Buffers are copies, so that what a forward pass writes into them does not reach the next one.
    Attributes that a forward pass sets are put back. Batch norms take the statistics of the batch. Threads that use one
    network wait for each other.

    Args:
        network: any module of one tensor argument.

    >>> import torch
    >>> linear = nn.Linear(2, 1, bias=False)
    >>> FunctionalNetwork(linear)({"weight": torch.ones(1, 2)}, torch.ones(3, 2)).flatten().tolist()
    [2.0, 2.0, 2.0]
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        with one_at_a_time(network):  # another thread may have other tensors in it
            self.parameters: Parameters = dict(network.named_parameters())
            names = {id(parameter): name for name, parameter in self.parameters.items()}
            self._places: dict[str, str] = {}  # of a parameter, and its name
            self._own_buffers: Parameters = {}
            for path, module in network.named_modules():  # each under its first name
                prefix = f"{path}." if path else ""
                own = module.named_parameters(recurse=False, remove_duplicate=False)
                self._places |= {prefix + name: names[id(parameter)] for name, parameter in own}
                self._own_buffers |= {prefix + name: buffer for name, buffer in module.named_buffers(recurse=False)}
        self._watched = modules_to_watch(network)

    def __call__(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Run the network on x (N, ...) with `parameters`, one tensor for each name of `network.named_parameters()`."""
        tensors = {place: parameters[name] for place, name in self._places.items()}
        tensors |= {place: buffer.clone() for place, buffer in self._own_buffers.items()}
        with one_at_a_time(self.network), unchanged(self._watched), batch_statistics(self.network):
            return as_logits(functional_call(self.network, tensors, (x,), tie_weights=False), self.network)


def as_logits(output: Any, network: nn.Module) -> Tensor:
    """Give what a network answered, or refuse a network that answers with something else than a tensor."""
    if not isinstance(output, Tensor):
        name, given = type(network).__name__, type(output).__name__
        raise InputError(f"{name} gives a {given}, and learners take logits; wrap it so that it gives one tensor")
    return output


@contextmanager
def lent(network: nn.Module) -> Iterator[None]:
    """Lend a network to a library that makes functional copies of it: right operations, and nothing left behind."""
    watched = modules_to_watch(network)
    plain = not watched and all(type(module) not in EXACT_BY_KERNELS for module in network.modules())
    operations = nullcontext() if plain else ExactOperations()
    with one_at_a_time(network), operations, unchanged(watched), batch_statistics(network):
        yield


def one_at_a_time(network: nn.Module) -> AbstractContextManager[object]:
    """Let one thread at a time give a network other tensors than its own; a server answers in several."""
    with _LOCKS_LOCK:
        return _LOCKS.setdefault(network, threading.RLock())


def modules_to_watch(network: nn.Module) -> list[nn.Module]:
    """All modules where the forward pass of one may do anything, also to others; none where all are known."""
    modules = list(network.modules())
    return [] if all(map(is_known, modules)) else modules


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Let batch norms use the statistics of the batch at hand: running ones would leak between episodes."""
    norms = [module for module in network.modules() if isinstance(module, BATCH_NORMS) and not module.training]
    for norm in norms:
        norm.training = True
    try:
        yield
    finally:
        for norm in norms:
            norm.training = False


@contextmanager
def unchanged(chosen: Iterable[nn.Module]) -> Iterator[None]:
    """Put back what is set on modules meanwhile: attributes, and what dictionaries, lists and tensors in them hold.

    A cache or a count would carry tensors of one episode, or of a transform that has ended, into the next.
    """
    modules, spaces = list(chosen), list[dict[str, Any]]()
    for module in modules:
        spaces += [vars(module), *(value for value in vars(module).values() if isinstance(value, dict))]
    before = [dict(space) for space in spaces]
    for module in modules:
        for name, value in vars(module).items():  # the forward pass gets copies of what it may change in place
            if isinstance(value, list | Tensor):
                vars(module)[name] = value.clone() if isinstance(value, Tensor) else list(value)
    try:
        yield
    finally:
        for space, old in zip(spaces, before, strict=True):
            if space.keys() != old.keys() or any(space[name] is not value for name, value in old.items()):
                space.clear()
                space.update(old)
