"""Convolutions of windows that lie in memory as matrices: batched matrix products, one matrix for each episode."""

from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Size, Tensor

Role: TypeAlias = Literal["output", "image", "weight"]

LANES = 8  # float32 numbers in a register of AVX2


def product(first: Tensor, second: Tensor) -> Tensor:
    """Multiply matrices (episodes, M, K) and (episodes, K, N), in the order that is faster.

    Where N is no multiple of `LANES`, MKL takes two to four times as long on an AMD processor as for the transposes in
    the other order, whose result has N rows. That of 2880x26 and 26x10 took 5.2 ms for 32 episodes, and takes 1.9.

    >>> product(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0], [4.0]]]))
    tensor([[[11.]]])
    """
    if second.shape[-1] % LANES and second.shape[-1] < first.shape[-2]:
        return torch.bmm(second.transpose(1, 2), first.transpose(1, 2)).transpose(1, 2)
    return torch.bmm(first, second)


class PatchConvolution:
    """One matrix product of whole patches, for each of the three maps of `Contraction`."""

    joins_batches: ClassVar[bool] = False

    def __call__(self, first: Tensor, second: Tensor, wanted: Role, _shape: Size) -> Tensor:
        """Images are patches (..., M, K), weights (..., K, O), outputs (..., M, O)."""
        one, other = (factor.reshape(-1, *factor.shape[-2:]) for factor in (first, second))
        if wanted == "output":
            result = product(one, other)
        elif wanted == "image":
            result = product(one, other.transpose(1, 2))
        else:
            result = product(other.transpose(1, 2), one)
        return result.view(*first.shape[:-2], *result.shape[1:])


class StripConvolution:
    """One batched matrix product for each row of the kernel.

    A strip holds the windows, as wide as the kernel and one row high, of one row of all images of an episode. The
    strips that one row of the kernel meets lie together in memory, so every product works on views. A kernel of five
    rows copies a fifth of the numbers that whole patches have.
    """

    joins_batches: ClassVar[bool] = False  # strips of several episodes do not lie together

    def __call__(self, first: Tensor, second: Tensor, wanted: Role, shape: Size) -> Tensor:
        """Compute one of the three maps of `Contraction`.

        Images are strips (..., H, M, K), weights (..., rows, K, O), outputs (..., H - rows + 1, M, O).
        """
        leading, whole = first.shape[:-3], first.contiguous().reshape(-1, *first.shape[-3:]).flatten(1, 2)
        if wanted == "weight":
            strips = second.contiguous().reshape(-1, *second.shape[-3:]).flatten(1, 2)
            met = _met(second.shape[-3], second.shape[-2], shape[-3])
            products = [product(strips[:, rows].transpose(1, 2), whole) for rows in met]
            return torch.stack(products, 1).view(*leading, *shape[-3:])
        weight = second.reshape(-1, *second.shape[-3:])
        high, wide, _ = first.shape[-3:] if wanted == "output" else shape[-3:]
        met = _met(high, wide, weight.shape[1])
        if wanted == "output":
            out = torch.bmm(whole[:, met[0]], weight[:, 0])
            for row in range(1, len(met)):
                out.baddbmm_(whole[:, met[row]], weight[:, row])
            return out.view(*leading, high - len(met) + 1, wide, weight.shape[-1])
        out = whole.new_zeros(len(whole), high * wide, shape[-1])
        for row, rows in enumerate(met):
            out[:, rows].baddbmm_(whole, weight[:, row].transpose(1, 2))
        return out.view(*leading, *shape[-3:])


def _met(high: int, wide: int, rows: int) -> list[slice]:
    """Which strips, their rows and columns in one dimension, each row of the kernel meets.

    >>> _met(high=4, wide=10, rows=2)
    [slice(0, 30, None), slice(10, 40, None)]
    """
    return [slice(row * wide, (row + high - rows + 1) * wide) for row in range(rows)]
