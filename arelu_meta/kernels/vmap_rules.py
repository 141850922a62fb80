"""What the `vmap` rules of our autograd functions share."""

from typing import Any

from torch import Tensor


def tasks_first(in_dims: tuple[Any, ...], *tensors: Tensor) -> list[Tensor]:
    """Give each tensor a leading dimension over tasks, repeated where it has none of its own."""
    dims = in_dims[: len(tensors)]
    tasks = next(tensor.shape[dim] for tensor, dim in zip(tensors, dims, strict=True) if dim is not None)
    return [
        tensor.expand(tasks, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]
