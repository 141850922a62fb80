"""Convolutions as one batched matrix product for each row of the kernel.

A strip holds the windows, as wide as the kernel and one row high, of one row of all images of a task. The strips that
one row of the kernel meets lie together in memory, so every product works on views. A kernel of five rows copies a
fifth of the numbers that whole patches have.
"""

import torch
from torch import Size, Tensor


class StripConvolution:
    """A `Kernel` on strips (..., H, M, K) and weights (..., rows, K, O); outputs are (..., H - rows + 1, M, O)."""

    def convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        """Add up the products of the kernel's rows."""
        rows, (high, wide) = weight.shape[-3], x.shape[-3:-1]
        strips, kernels = _flat(x), _tasks(weight)
        met = _met(high, rows, wide)
        out = torch.bmm(strips[:, met[0]], kernels[:, 0])
        for row in range(1, rows):
            out.baddbmm_(strips[:, met[row]], kernels[:, row])
        return out.view(*x.shape[:-3], high - rows + 1, wide, weight.shape[-1])

    def to_images(self, gradient: Tensor, weight: Tensor, shape: Size) -> Tensor:
        """Add each row's product to the strips it has met."""
        rows, (high, wide, _) = weight.shape[-3], shape[-3:]
        gradients, kernels = _flat(gradient), _tasks(weight)
        out = gradients.new_zeros(len(gradients), high * wide, shape[-1])
        for row, met in enumerate(_met(high, rows, wide)):
            out[:, met].baddbmm_(gradients, kernels[:, row].transpose(1, 2))
        return out.view(*gradient.shape[:-3], *shape[-3:])

    def to_weight(self, gradient: Tensor, x: Tensor, shape: Size) -> Tensor:
        """Multiply the strips that each row has met."""
        rows, (high, wide) = shape[-3], x.shape[-3:-1]
        gradients, strips = _flat(gradient), _flat(x)
        products = [torch.bmm(strips[:, met].transpose(1, 2), gradients) for met in _met(high, rows, wide)]
        return torch.stack(products, 1).view(*x.shape[:-3], *shape[-3:])

    def as_one_batch(self, weight: Tensor) -> bool:
        """Strips of several tasks do not lie together."""
        del weight
        return False


def _met(high: int, rows: int, wide: int) -> list[slice]:
    """Which strips, their rows and columns in one, each row of the kernel meets."""
    return [slice(row * wide, (row + high - rows + 1) * wide) for row in range(rows)]


def _tasks(tensor: Tensor) -> Tensor:
    """One dimension over tasks, whatever the leading ones are."""
    return tensor.reshape(-1, *tensor.shape[-3:])


def _flat(tensor: Tensor) -> Tensor:
    """One dimension over tasks, one over rows and columns."""
    return _tasks(tensor.contiguous()).flatten(1, 2)
