"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) for the inner loop: a weight W becomes W + B A.

A and B are parameters of the layer itself, so that every engine moves them as it moves any other. peft's adapters,
which `adapt` trains, are modules beside the layer and give the same weight when they are merged.
"""

from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear  # torch's attention uses its weight, not the layer

from arelu_meta.errors import InputError
from arelu_meta.kernels.module_internals import with_weight
from arelu_meta.learners import LORA_RANK

FACTORS = ("lora_a", "lora_b")


class LowRank(nn.Module):
    """A layer whose weight is W + B A: what else its class does to inputs and weight, such as padding, stays.

    `lora_a` is (rank, inputs), with the inputs of a convolution counted over its kernel, `lora_b` is (outputs, rank).
    """

    weight: Tensor
    lora_a: Tensor
    lora_b: Tensor

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Do what the layer does, with W + B A for W."""
        weight = self.weight + (self.lora_b @ self.lora_a).view(self.weight.shape)
        with with_weight(self, weight):
            return super().forward(*args, **kwargs)


class LowRankLinear(LowRank, nn.Linear):
    """A linear layer with a low-rank adapter."""


class LowRankConv2d(LowRank, nn.Conv2d):
    """A convolution with a low-rank adapter."""


_WITH_ADAPTER: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: LowRankLinear, nn.Conv2d: LowRankConv2d}


def _add_adapter(layer: nn.Linear | nn.Conv2d, rank: int) -> None:
    outputs, inputs = layer.weight.flatten(1).shape
    rank, kind = min(rank, outputs, inputs), type(layer)
    first = nn.init.kaiming_uniform_(torch.empty(rank, inputs), a=sqrt(5))  # on the CPU: the same for every device
    second = layer.weight.new_zeros(outputs, rank)
    for name, factor in zip(FACTORS, (first.to(layer.weight), second), strict=True):
        layer.register_parameter(name, nn.Parameter(factor))
    if kind not in _WITH_ADAPTER:  # of somebody else's: it counts as theirs, and is checked under vmap as such
        _WITH_ADAPTER[kind] = type(f"LowRank{kind.__name__}", (LowRank, kind), {"__module__": kind.__module__})
    layer.__class__ = _WITH_ADAPTER[kind]  # type: ignore[assignment]


def adapter_names(network: nn.Module) -> frozenset[str]:
    """Names of the factors A and B of all adapters in a network."""
    names = (name for name, _ in network.named_parameters())
    return frozenset(name for name in names if name.rpartition(".")[2] in FACTORS)


def with_adapters(network: nn.Module, adapt: str | frozenset[str], *, rank: int = LORA_RANK) -> nn.Module:
    """Give a network low-rank adapters, in place, where `adapt` says that they move; they change no answer yet.

    Every linear layer and 2-D convolution without groups has one, the head too. A starts as peft draws it, from torch's
    global randomness, B at zero. A layer whose weight has a smaller rank than `rank` has an adapter of that rank.

    Args:
        network: any module; one that has adapters keeps them
        adapt: as in `learners.maml.maml`
        rank: rank of B A, 1 or more

    Returns:
        The network.

    Raises:
        InputError: no layer can have an adapter, or the rank is below 1, above what any layer has, another than that of
            the adapters that are there, or given where none move.

    >>> network = with_adapters(nn.Sequential(nn.Flatten(), nn.Linear(8, 5)), "lora", rank=2)
    >>> {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    {'1.weight': (5, 8), '1.bias': (5,), '1.lora_a': (2, 8), '1.lora_b': (5, 2)}
    """
    if not isinstance(adapt, str) or "lora" not in adapt.split("+"):
        if rank != LORA_RANK:
            raise InputError(f"lora_rank = {rank}, but adapt {adapt!r} has no adapters; leave `lora_rank` out")
        return network
    kind = type(network).__name__
    present = [parameter for name, parameter in network.named_parameters() if name.rpartition(".")[2] == FACTORS[0]]
    if present:
        if max(map(len, present)) != rank:
            raise InputError(f"{kind} has adapters of rank {max(map(len, present))}, not of `lora_rank` {rank}")
        return network
    layers = _adaptable(network)
    if not layers:
        raise InputError(f"{kind} has no linear layer or convolution without groups for adapt {adapt!r}; use `norm`")
    most = max(min(layer.weight.flatten(1).shape) for layer in layers)
    if not 1 <= rank <= most:
        raise InputError(f"lora_rank = {rank}; the layers of {kind} have ranks up to {most}, so give 1 to {most}")
    for layer in layers:
        _add_adapter(layer, rank)
    return network


def _adaptable(network: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """Layers that an adapter can stand in: without groups, and with a weight that is not made of other parameters."""
    layers = list[nn.Linear | nn.Conv2d]()
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d) and not isinstance(module, NonDynamicallyQuantizableLinear):
            own = dict(module.named_parameters(recurse=False))
            if "weight" in own and "forward" not in vars(module) and getattr(module, "groups", 1) == 1:
                layers.append(module)
    return layers
