"""Ways to the same result in less time: memory layout, compilation, fused updates. Rounding alone may differ."""

import os
import shutil
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from arelu_meta.errors import InputError

COMPILERS = ("g++", "clang++", "c++")
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")  # where torch has the kernels of SGD, Adam and AdamW


@dataclass(frozen=True)
class Speedups:
    """What of it a training uses."""

    channels_last: bool = False
    compile: bool = False
    fused: bool = False

    def prepare(self, network: nn.Module) -> nn.Module:
        """Lay the network's parameters out, in place, and give what is called in training: itself, or compiled."""
        device = next(network.parameters()).device.type
        if self.fused and device not in FUSED_DEVICES:
            raise InputError(f"torch has no fused optimizers for {device}; drop --fused")
        if self.channels_last:
            network.to(memory_format=torch.channels_last)
        if not self.compile:
            return network
        if device == "cpu" and not _has_compiler():
            raise InputError(
                f"--compile on a CPU needs a C++ compiler ({', '.join(COMPILERS)}); install one or drop it"
            )
        compiled: nn.Module = torch.compile(network)  # type: ignore[assignment]
        return compiled

    def lay_out(self, x: Tensor) -> Tensor:
        """Give a batch (N, C, H, W) the layout of the parameters."""
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last else x


PLAIN = Speedups()


def _has_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), *COMPILERS) if name)
