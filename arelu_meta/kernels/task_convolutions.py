"""Convolutions with weights of their own per task: small ones as batched matrix products, large ones task by task.

Under `vmap` torch makes a grouped convolution of them, which on a CPU runs at a quarter of the speed of a matrix
product, and whose second derivative loops over the groups. Windows are laid out channels last, so that copying them
moves whole kernel rows at a time; where those of a task outgrow a core's cache, torch's kernel for one task wins.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.kernels.convolution_maps import Convolve
from arelu_meta.kernels.native_convolution import NativeConvolution
from arelu_meta.kernels.pair import as_pair
from arelu_meta.kernels.patches import Patches
from arelu_meta.kernels.strip_convolution import StripConvolution

WINDOWS_AT_MOST = 2**18  # numbers per task: one megabyte of float32
STRIPS_FROM = 2**14  # numbers of a task's patches: below, one product beats one for each row of the kernel
STRIPS_THICK = 32  # numbers in one row of the kernel: below, the products are too thin


class TaskConvolutions:
    """`F.conv2d` on a batch of images; padding by name is left to torch.

    The windows of images named by `keep` are made once and used in every pass: the support set is looked at in each
    inner step.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Tensor, dict[tuple[Any, ...], Tensor]]] = []

    def keep(self, images: Tensor) -> None:
        """Reuse the windows of these images, which no gradient is asked for."""
        self._kept.append((images, {}))

    def convolve(self, *args: Any, **kwargs: Any) -> Tensor | None:
        """Convolve as torch does, or decline."""
        call = _Call(*args, **kwargs)
        return self._convolved(call) if call.on_a_batch() else None

    def _convolved(self, call: "_Call") -> Tensor:
        kept = any(images is call.input for images, _ in self._kept)
        strips = call.as_strips()
        small = kept or call.window_numbers(1 if strips else call.rows) <= WINDOWS_AT_MOST
        if not small or not call.plain():
            return call.plus_bias(Convolve.apply(call.input, call.weight, call.native))
        if strips:
            return call.plus_bias(self._from_strips(call))
        if call.bias is not None and (kept or call.widens()):
            return self._from_patches_with_bias(call, call.bias)
        return call.plus_bias(self._from_patches(call))

    def _from_patches(self, call: "_Call") -> Tensor:
        patches = self._kept_or_made(call, call.patches)
        return (patches @ call.weight_channels_last().flatten(0, 2)).permute(0, 3, 1, 2)

    def _from_patches_with_bias(self, call: "_Call", bias: Tensor) -> Tensor:
        """Multiply the bias by ones that stand beside the patches, which saves passes over the outputs."""
        patches = self._kept_or_made(call, call.patches_and_ones)
        weight = torch.cat([call.weight_channels_last().flatten(0, 2), bias[None]])
        return (patches @ weight).permute(0, 3, 1, 2)

    def _from_strips(self, call: "_Call") -> Tensor:
        strips = self._kept_or_made(call, call.strips)
        _, images, wide, _ = strips.shape
        kernel = call.weight_channels_last().flatten(1, 2)
        out = Convolve.apply(strips.flatten(1, 2), kernel, StripConvolution()).unflatten(1, (images, wide))
        return out.transpose(0, 1).contiguous().permute(0, 3, 1, 2)

    def _kept_or_made(self, call: "_Call", make: Callable[[], Tensor]) -> Tensor:
        made = next((made for images, made in self._kept if images is call.input), {})
        key = (make.__name__, call.rows, call.columns, *call.native.padding)
        if key not in made:
            made[key] = make()
        return made[key]


class _Call:
    """The arguments of one call of `F.conv2d`."""

    def __init__(
        self,
        input: Tensor,  # noqa: A002  (torch's name for it)
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: Any = 0,  # numbers, or a name
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> None:
        self.input, self.weight, self.bias = input, weight, bias
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.channels, self.rows, self.columns = weight.shape[-3:]

    def on_a_batch(self) -> bool:
        """Tell whether images come as a batch of real numbers, with padding in numbers, larger than the kernel."""
        if self.input.dim() != 4 or isinstance(self.padding, str):
            return False
        real = self.input.is_floating_point() and self.weight.is_floating_point()
        sides = zip(self.input.shape[-2:], as_pair(self.padding), self.weight.shape[-2:], strict=True)
        return real and all(side + 2 * padding >= kernel for side, padding, kernel in sides)

    def plain(self) -> bool:
        """Tell whether the kernel sees every place and every channel."""
        return self.native.stride == self.native.dilation == (1, 1) and self.groups == 1

    def as_strips(self) -> bool:
        """Tell whether one product for each row of the kernel is likely to beat one for all of it."""
        thick = self.columns * self.channels >= STRIPS_THICK
        return self.rows > 1 and thick and self.window_numbers(self.rows) >= STRIPS_FROM

    def window_numbers(self, rows: int) -> int:
        """Numbers that all windows of so many rows have."""
        return len(self.input) * math.prod(self.input.shape[-2:]) * rows * self.columns * self.channels

    def widens(self) -> bool:
        """Tell whether an output has more numbers than the patch it comes from."""
        return self.rows * self.columns * self.channels < self.weight.shape[0]

    @cached_property
    def native(self) -> NativeConvolution:
        """The same by torch's own kernels."""
        return NativeConvolution(as_pair(self.stride), as_pair(self.padding), as_pair(self.dilation), self.groups)

    def plus_bias(self, out: Tensor) -> Tensor:
        """Add the bias, if there is one."""
        return out if self.bias is None else out + self.bias[:, None, None]

    def patches(self) -> Tensor:
        """Cut the images into (N, H', W', rows * columns * C)."""
        padded = self._padded_channels_last()
        if self.rows == self.columns == 1:
            return padded
        return Patches.apply(padded, self.rows, self.columns).flatten(-3)

    def patches_and_ones(self) -> Tensor:
        """Cut the images into (N, H', W', rows * columns * C + 1)."""
        return F.pad(self.patches(), (0, 1), value=1.0)

    def strips(self) -> Tensor:
        """Cut the rows of the images into (H, N, W', columns * C)."""
        return Patches.apply(self._padded_channels_last().transpose(0, 1), 1, self.columns).flatten(-3)

    def weight_channels_last(self) -> Tensor:
        """Put the weights as (rows, columns, C, outputs)."""
        return self.weight.permute(2, 3, 1, 0)

    def _padded_channels_last(self) -> Tensor:
        high, wide = self.native.padding
        last = self.input.permute(0, 2, 3, 1)
        return F.pad(last, (0, 0, wide, wide, high, high)) if high or wide else last
