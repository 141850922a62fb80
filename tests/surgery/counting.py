"""Count activations by what the kernels are asked to do, below modules, functions and methods: knows nothing of fx."""

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
KERNELS = {
    aten.relu,
    aten.relu_,
    aten.relu6,
    aten.leaky_relu,
    aten.leaky_relu_,
    aten._prelu_kernel,
    aten.elu,
    aten.elu_,
    aten.celu,
    aten.celu_,
    aten.gelu,
    aten.silu,
    aten.silu_,
    aten.hardswish,
    aten.hardswish_,
    aten.mish,
    aten.mish_,
    aten.rrelu_with_noise,
    aten.rrelu_with_noise_,
}


class ActivationCounter(TorchDispatchMode):
    """Number of activation kernels that run; ReLU6 reaches them as a clamp to [0, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        clamps = packet in (aten.hardtanh, aten.hardtanh_) and tuple(args[1:]) == (0, 6)
        self.total += packet in KERNELS or clamps
        return func(*args, **(kwargs or {}))


def count_kernels(model: nn.Module, *inputs: torch.Tensor) -> int:
    with ActivationCounter() as counter, torch.no_grad():
        model(*inputs)
    return counter.total


def count_calls(model: nn.Module, names: list[str], *inputs: torch.Tensor) -> Counter[str]:
    """How often each named module runs in one forward pass."""
    calls: Counter[str] = Counter()
    hooks = [
        model.get_submodule(name).register_forward_hook(lambda *_, name=name: calls.update([name])) for name in names
    ]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return calls
