"""A network as a pure function of its parameters: whatever its forward pass does, the network stays as it was."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.func import functional_call

from arelu_meta.backbones.norm import BATCH_NORMS
from arelu_meta.kernels.episode_operations import ExactOperations
from arelu_meta.learners.known_layers import EXACT_BY_KERNELS, is_known

Parameters: TypeAlias = dict[str, Tensor]


class FunctionalNetwork:
    """Call a network with other parameters than its own.

    Parameters are found by identity: a module that has two names is given its tensors once, a tensor that two modules
    share goes to both. Buffers are copies, so that what a forward pass writes into them does not reach the next one.
    Attributes that a forward pass sets on modules of others are put back. Batch norms take the statistics of the batch.

    Args:
        network: any module of one tensor argument.

    >>> import torch
    >>> linear = nn.Linear(2, 1, bias=False)
    >>> FunctionalNetwork(linear)({"weight": torch.ones(1, 2)}, torch.ones(3, 2)).flatten().tolist()
    [2.0, 2.0, 2.0]
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.parameters: Parameters = dict(network.named_parameters())
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        self._places: dict[str, str] = {}  # of a parameter, and its name
        self._buffers: Parameters = {}
        for path, module in network.named_modules():  # each under its first name
            prefix = f"{path}." if path else ""
            own = module.named_parameters(recurse=False, remove_duplicate=False)
            self._places |= {prefix + name: names[id(parameter)] for name, parameter in own}
            self._buffers |= {prefix + name: buffer for name, buffer in module.named_buffers(recurse=False)}
        self._others = modules_of_others(network)

    def __call__(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Run the network on x (N, ...) with `parameters`, one tensor for each name of `network.named_parameters()`."""
        tensors = {place: parameters[name] for place, name in self._places.items()}
        tensors |= {place: buffer.clone() for place, buffer in self._buffers.items()}
        with unchanged(self._others), batch_statistics(self.network):
            output: Tensor = functional_call(self.network, tensors, (x,), tie_weights=False)
            return output


@contextmanager
def lent(network: nn.Module) -> Iterator[None]:
    """Lend a network to a library that makes functional copies of it: right operations, and nothing left behind."""
    others = modules_of_others(network)
    plain = not others and all(type(module) not in EXACT_BY_KERNELS for module in network.modules())
    with nullcontext() if plain else ExactOperations(), unchanged(others), batch_statistics(network):
        yield


def modules_of_others(network: nn.Module) -> list[nn.Module]:
    """Modules whose forward pass may do anything."""
    return [module for module in network.modules() if not is_known(module)]


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
def unchanged(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Put back what is set on modules meanwhile: attributes, and entries of attributes that are dictionaries.

    A cache or a count would carry tensors of one episode, or of a transform that has ended, into the next.
    """
    spaces: list[dict[str, Any]] = []
    for module in modules:
        spaces += [vars(module), *(value for value in vars(module).values() if isinstance(value, dict))]
    before = [dict(space) for space in spaces]
    try:
        yield
    finally:
        for space, old in zip(spaces, before, strict=True):
            if space.keys() != old.keys() or any(space[name] is not value for name, value in old.items()):
                space.clear()
                space.update(old)
