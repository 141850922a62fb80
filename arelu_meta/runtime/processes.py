"""Several processes, one run: `torchrun -m arelu_meta.maml ...` shards the tasks of a batch and adds up the gradients.

Without torchrun there is one process, and nothing here does anything.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

# Its functions have the group of the moment as a default. Imported while there is one, as torch's machinery does, it
# would keep the group beyond its end, and a thread of the group's that meets the interpreter's end aborts the process.
import torch.distributed.nn.functional
from torch import Tensor
from torch.nn import Module, Parameter


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_first() -> bool:
    """Tell whether this process is the one that speaks; unlike `rank`, also before and after the group exists."""
    return int(os.environ.get("RANK", "0")) == 0


def launched() -> bool:
    """Tell whether torchrun started several processes; unlike `world_size`, also before the group exists."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the group that torchrun's environment describes: gloo on CPUs, nccl on GPUs."""
    if not launched() or dist.is_initialized():
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def all_reduce_gradients(parameters: Iterable[Parameter]) -> None:
    """Sum `.grad` over all processes, as one flat message."""
    if world_size() == 1:
        return
    present = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in present:
        if parameter.grad is None:  # every process must send the same shape, with or without tasks of its own
            parameter.grad = torch.zeros_like(parameter)
    flat = torch.cat([parameter.grad.flatten() for parameter in present if parameter.grad is not None])
    dist.all_reduce(flat)
    for parameter, summed in zip(present, flat.split([parameter.numel() for parameter in present]), strict=True):
        parameter.grad = summed.view_as(parameter)


def gather_rows(rows: Tensor, total: int) -> Tensor:
    """Put rows that were dealt out as `[rank::world]` back in their order, in every process."""
    if world_size() == 1:
        return rows
    whole = torch.zeros((total, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
    whole[rank() :: world_size()] = rows
    dist.all_reduce(whole)
    return whole


def broadcast_buffers(module: Module) -> None:
    """Give every process the first one's buffers: running statistics come from what each has seen itself."""
    if world_size() > 1:
        for buffer in module.buffers():
            dist.broadcast(buffer, 0)


def broadcast(value: float) -> float:
    """Give every process the first one's number, so that all decide alike."""
    if world_size() == 1:
        return value
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    shared = torch.tensor(value, dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return shared.item()


def all_reduce(values: Tensor) -> Tensor:
    """Sum a small tensor over all processes."""
    if world_size() > 1:
        dist.all_reduce(values)
    return values
