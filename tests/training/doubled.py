"""Batches in float64, in which rounding is too small to hide a difference."""

from torch import Tensor

from arelu_meta.data.batches import Batches


class DoubleBatches(Batches):
    def gather(self, numbers: Tensor, share: slice = slice(None)) -> tuple[Tensor, Tensor]:
        x, y = super().gather(numbers, share)
        return x.double(), y
