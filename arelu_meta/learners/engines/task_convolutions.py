"""Convolutions with weights of their own per task: small ones as batched matrix products over patches, large ones
task by task.

Under `vmap` torch makes a grouped convolution of them, which on a CPU runs at a quarter of the speed of a matrix
product, and whose second derivative loops over the groups. Patches are laid out channels last, so that copying them
moves whole kernel rows at a time; where a task's patches outgrow a core's cache, torch's kernel for one task wins.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

from arelu_meta.learners.engines.convolution_maps import Convolve, Pair, Window

PATCHES_AT_MOST = 2**18  # numbers per task: one megabyte of float32


class TaskConvolutions(TorchFunctionMode):
    """While active, `F.conv2d` on a batch of images is done so; padding by name passes untouched.

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
            if call.on_a_batch():
                small = call.patch_numbers() <= PATCHES_AT_MOST or self._is_kept(call.input)
                return self._matrix_product(call) if small and call.plain() else _convolved(call)
        return func(*args, **kwargs)

    def _is_kept(self, images: Tensor) -> bool:
        return any(kept is images for kept, _ in self._kept)

    def _matrix_product(self, call: "_Call") -> Tensor:
        kernel, width = tuple(call.weight.shape[-2:]), call.weight.shape[0]
        patches = self._patches(call.input, kernel, call.window().padding)
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

    def on_a_batch(self) -> bool:
        """Tell whether images come as a batch, with padding in numbers."""
        return self.input.dim() == 4 and not isinstance(self.padding, str)

    def plain(self) -> bool:
        """Tell whether the kernel sees every place and every channel."""
        window = self.window()
        return window.stride == window.dilation == (1, 1) and window.groups == 1

    def window(self) -> Window:
        """How the kernel moves."""
        return Window(_pair(self.stride), _pair(self.padding), _pair(self.dilation), self.groups)

    def patch_numbers(self) -> int:
        """Numbers that the patches would have."""
        return len(self.input) * math.prod(self.input.shape[-2:]) * math.prod(self.weight.shape[1:])


def _pair(value: Any) -> Pair:
    pair = [value] * 2 if isinstance(value, int) else [int(side) for side in value]
    return pair[0], pair[-1]


def _convolved(call: _Call) -> Tensor:
    out = Convolve.apply(call.input, call.weight, call.window())
    return out if call.bias is None else out + call.bias[:, None, None]


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
