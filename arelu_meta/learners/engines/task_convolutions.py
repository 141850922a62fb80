"""Convolutions with weights of their own per task, as batched matrix products over patches.

Under `vmap` torch makes a grouped convolution of them, which on a CPU runs at a quarter of the speed of a matrix
product, and whose second derivative loops over the groups. Patches are laid out channels last, so that copying them
moves whole kernel rows at a time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode


class TaskConvolutions(TorchFunctionMode):
    """While active, `F.conv2d` of stride 1 on a batch of images is a matrix product; all other calls pass untouched.

    The patches of images named by `keep` are made once and used in every pass: the support set is looked at in each
    inner step.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[Tensor, dict[tuple[int, ...], Tensor]]] = []

    def keep(self, images: Tensor) -> None:
        """Reuse the patches of these images, which no gradient is asked for."""
        self._kept.append((images, {}))

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Take over the convolutions that can be."""
        kwargs = kwargs or {}
        if func is torch.conv2d:
            call = _Call(*args, **kwargs)
            if call.plain():
                return self._convolve(call)
        return func(*args, **kwargs)

    def _convolve(self, call: "_Call") -> Tensor:
        kernel, width = tuple(call.weight.shape[-2:]), call.weight.shape[0]
        patches = self._patches(call.input, kernel, call.padding_pair())
        product = patches.flatten(-3) @ call.weight.permute(2, 3, 1, 0).reshape(-1, width)
        return (product if call.bias is None else product + call.bias).permute(0, 3, 1, 2)

    def _patches(self, images: Tensor, kernel: tuple[int, ...], padding: tuple[int, int]) -> Tensor:
        made = next((made for kept, made in self._kept if kept is images), {})
        key = (*kernel, *padding)
        if key not in made:
            high, wide = padding
            last = images.permute(0, 2, 3, 1)
            padded = F.pad(last, (0, 0, wide, wide, high, high)) if high or wide else last
            made[key] = padded.unsqueeze(-2).unsqueeze(-2) if kernel == (1, 1) else Patches.apply(padded, *kernel)
        return made[key]


class _Call:
    """The arguments of one call of `F.conv2d`."""

    def __init__(
        self,
        input: Tensor,  # noqa: A002  (torch's name for it)
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> None:
        self.input, self.weight, self.bias = input, weight, bias
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def plain(self) -> bool:
        """Tell whether this is an ordinary convolution of stride 1 on a batch."""
        ones = all(value in (1, (1, 1), [1, 1]) for value in (self.stride, self.dilation))
        return ones and self.groups == 1 and not isinstance(self.padding, str) and self.input.dim() == 4

    def padding_pair(self) -> tuple[int, int]:
        """Padding of rows and of columns."""
        pair = [self.padding] * 2 if isinstance(self.padding, int) else [int(side) for side in self.padding]
        return pair[0], pair[-1]


class Patches(Function):
    """All windows of images: (..., H, W, C) -> (..., H', W', kernel rows, kernel columns, C), H' = H - rows + 1."""

    @staticmethod
    def forward(images: Tensor, rows: int, columns: int) -> Tensor:
        """Copy the windows out."""
        return images.unfold(-3, rows, 1).unfold(-3, columns, 1).movedim(-3, -1).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """The map is linear: nothing but the size of the window is needed."""
        ctx.kernel = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Add every window back to where it came from."""
        return Overlap.apply(gradient, *ctx.kernel), None, None

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[Any, ...], images: Tensor, rows: int, columns: int) -> tuple[Tensor, int]:
        """Leading dimensions pass through, the one over tasks among them."""
        return Patches.apply(images.movedim(in_dims[0], 0), rows, columns), 0


class Overlap(Function):
    """The transpose of `Patches`: windows are added up where they overlap."""

    @staticmethod
    def forward(windows: Tensor, rows: int, columns: int) -> Tensor:
        """Add one kernel row of one output column at a time, so that what is added lies together in memory."""
        high, wide, channels = windows.shape[-5], windows.shape[-4], windows.shape[-1]
        windows = windows.contiguous()
        images = windows.new_zeros(*windows.shape[:-5], high + rows - 1, wide + columns - 1, channels)
        for row in range(rows):
            strip = images.narrow(-3, row, high)
            for column in range(wide):
                strip.narrow(-2, column, columns).add_(windows[..., column, row, :, :])
        return images

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """The map is linear: nothing but the size of the window is needed."""
        ctx.kernel = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Take the windows of the gradient."""
        return Patches.apply(gradient, *ctx.kernel), None, None

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[Any, ...], windows: Tensor, rows: int, columns: int) -> tuple[Tensor, int]:
        """Leading dimensions pass through, the one over tasks among them."""
        return Overlap.apply(windows.movedim(in_dims[0], 0), rows, columns), 0
