"""torch's own convolution kernels, task by task: what large convolutions are fastest with."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Size, Tensor

from arelu_meta.kernels.pair import Pair


@dataclass(frozen=True)
class NativeConvolution:
    """A `Kernel` on images (..., N, C, H, W) and weights (..., O, C / groups, rows, columns)."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        """Run the forward kernel."""

        def one(x: Tensor, weight: Tensor) -> Tensor:
            return torch.conv2d(x, weight, None, self.stride, self.padding, self.dilation, self.groups)

        return _per_task(one, x, weight)

    def to_images(self, gradient: Tensor, weight: Tensor, shape: Size) -> Tensor:
        """Run the backward kernel for the images."""

        def one(gradient: Tensor, weight: Tensor) -> Tensor:
            x = gradient.new_empty(1).expand(len(gradient), *shape[-3:])
            return self._backward(gradient, x, weight, (True, False))[0]

        return _per_task(one, gradient, weight)

    def to_weight(self, gradient: Tensor, x: Tensor, shape: Size) -> Tensor:
        """Run the backward kernel for the weights."""

        def one(gradient: Tensor, x: Tensor) -> Tensor:
            return self._backward(gradient, x, x.new_empty(1).expand(shape[-4:]), (False, True))[1]

        return _per_task(one, gradient, x)

    def as_one_batch(self, weight: Tensor) -> bool:
        """Weights without tasks of their own see all images at once."""
        return weight.dim() == 4

    def _backward(
        self, gradient: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.ops.aten.convolution_backward(
            gradient, x, weight, None, self.stride, self.padding, self.dilation, False, (0, 0), self.groups,
            (*wanted, False),
        )  # fmt: skip


def _per_task(one: Callable[[Tensor, Tensor], Tensor], first: Tensor, second: Tensor) -> Tensor:
    """Apply a map of two four-dimensional tensors to each pair along the leading dimensions."""
    if second.dim() == 4:
        return one(first, second)
    tasks = second.shape[:-4]
    pairs = zip(first.flatten(0, -5).unbind(), second.flatten(0, -5).unbind(), strict=True)
    return torch.stack([one(*pair) for pair in pairs]).unflatten(0, tasks)
