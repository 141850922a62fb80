"""Convolutions whose weights differ from episode to episode, and all their derivatives, on a CPU.

Under `vmap` torch makes one grouped convolution of them, which on a CPU runs at a quarter of the speed of a matrix
product, and whose second derivative loops over the groups. `EpisodeConvolutions` chooses instead: small convolutions
are batched matrix products of windows, either whole patches or strips one row high; large ones, whose windows outgrow a
core's cache, are torch's own kernels, episode by episode.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Size, Tensor
from torch.autograd import Function

from arelu_meta.kernels.window_products import PatchConvolution, Role, StripConvolution

Pair: TypeAlias = tuple[int, int]  # rows and columns

WINDOWS_AT_MOST = 2**18  # numbers per episode: one megabyte of float32
THIN_AT_MOST = 2**21  # the same of patches of few numbers, where gradients are wanted: twice as fast as torch's kernels
STRIPS_FROM = 2**14  # numbers of an episode's patches: below, one product beats one for each row of the kernel
STRIPS_THICK = 32  # numbers in one row of the kernel: below, the products are too thin
FACTORS: dict[Role, tuple[Role, Role]] = {
    "output": ("image", "weight"),
    "image": ("output", "weight"),
    "weight": ("output", "image"),
}


class EpisodeConvolutions:
    """`F.conv2d` on batches of images, with weights that may differ from episode to episode under `vmap`.

    The windows of `kept` images, for which no gradient is needed, are cut once and used in every pass: the support set
    is seen in each inner step.
    """

    def __init__(self, *kept: Tensor) -> None:
        self._kept: list[tuple[Tensor, dict[tuple[Any, ...], Tensor]]] = [(images, {}) for images in kept]

    def __call__(
        self,
        input: Tensor,  # noqa: A002  (torch's name for it)
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: Any = 0,  # numbers, or a name
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor | None:
        """Convolve as torch does; None for padding by name, a single image, complex numbers and too large kernels."""
        real = input.is_floating_point() and weight.is_floating_point()
        if input.dim() != 4 or isinstance(padding, str) or not real:
            return None
        native = NativeConvolution(as_pair(stride), as_pair(padding), as_pair(dilation), groups)
        outputs, channels, rows, columns = weight.shape
        sides = zip(input.shape[-2:], native.padding, (rows, columns), strict=True)
        if any(side + 2 * padded < kernel for side, padded, kernel in sides):
            return None
        kept = any(images is input for images, _ in self._kept)
        in_one_row = len(input) * math.prod(input.shape[-2:]) * columns * channels  # numbers of windows one row high
        strips = rows > 1 and columns * channels >= STRIPS_THICK and in_one_row * rows >= STRIPS_FROM
        thin = rows * columns * channels < STRIPS_THICK and torch.is_grad_enabled()
        most = THIN_AT_MOST if thin else WINDOWS_AT_MOST
        small = kept or in_one_row * (1 if strips else rows) <= most
        dense = native.stride == native.dilation == (1, 1) and groups == 1  # each output sees every pixel and channel
        if small and dense and not strips and bias is not None and (kept or rows * columns * channels < outputs):
            # Ones beside the patches, multiplied by the bias, save a pass over the outputs.
            patches = self._windows("patches and ones", input, rows, columns, native.padding)
            return _of_patches(patches, torch.cat([weight.permute(2, 3, 1, 0).flatten(0, 2), bias[None]]))
        if not (small and dense):
            out = Contraction.apply(input, weight, "output", Size(), native)
        elif strips:
            windows = self._windows("strips", input, rows, columns, native.padding)  # (H, N, W', columns * C)
            kernel = weight.permute(2, 3, 1, 0).flatten(1, 2)  # (rows, columns * C, outputs)
            out = Contraction.apply(windows.flatten(1, 2), kernel, "output", Size(), StripConvolution())
            out = out.unflatten(1, windows.shape[1:3]).transpose(0, 1).contiguous().permute(0, 3, 1, 2)
        else:
            patches = self._windows("patches", input, rows, columns, native.padding)  # (N, H', W', rows * columns * C)
            out = _of_patches(patches, weight.permute(2, 3, 1, 0).flatten(0, 2))
        return out if bias is None else out + bias[:, None, None]

    def _windows(self, layout: str, images: Tensor, rows: int, columns: int, padding: Pair) -> Tensor:
        """Cut images (N, C, H, W) into windows, or give those that were kept."""
        made = next((made for kept, made in self._kept if kept is images), {})
        key = (layout, rows, columns, *padding)
        if key in made:
            return made[key]
        high, wide = padding
        x = images.permute(0, 2, 3, 1)  # channels last: copying windows moves whole kernel rows at a time
        x = F.pad(x, (0, 0, wide, wide, high, high)) if high or wide else x
        if layout == "strips":
            windows = Windows.apply(x.transpose(0, 1), 1, columns, False).flatten(-3)
        else:
            windows = x if rows == columns == 1 else Windows.apply(x, rows, columns, False).flatten(-3)
            windows = F.pad(windows, (0, 1), value=1.0) if layout == "patches and ones" else windows
        made[key] = windows
        return windows


class Contraction(Function):
    """One of the three bilinear maps that belong to a convolution; the gradients of each are the other two.

    Images and weights give outputs, outputs and weights give images, outputs and images give weights. A kernel computes
    all three, so derivatives of every order need nothing else. torch's own second derivative is made of grouped
    convolutions of transposed tensors, for which a CPU has no fast kernel.
    """

    @staticmethod
    def forward(first: Tensor, second: Tensor, wanted: Role, shape: Size, kernel: "Kernel") -> Tensor:
        """Compute what is wanted from its two `FACTORS`.

        `shape` is that of the wanted image or weight, but for leading dimensions; the shape of outputs follows.
        """
        return kernel(first, second, wanted, shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep both factors."""
        first, second, ctx.wanted, _, ctx.kernel = inputs
        ctx.save_for_backward(first, second)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """Multiply the gradient by the other factor, for each factor that needs one."""
        roles = FACTORS[ctx.wanted]
        known = dict(zip(roles, ctx.saved_tensors, strict=True))
        shapes = [known[role].shape for role in roles]
        known[ctx.wanted] = gradient
        to_first, to_second = (
            Contraction.apply(*(known[factor] for factor in FACTORS[role]), role, shape, ctx.kernel) if needed else None
            for role, shape, needed in zip(roles, shapes, ctx.needs_input_grad, strict=False)
        )
        return to_first, to_second, None, None, None

    @staticmethod
    def vmap(
        _info: Any,
        in_dims: tuple[Any, ...],
        first: Tensor,
        second: Tensor,
        wanted: Role,
        shape: Size,
        kernel: "Kernel",
    ) -> tuple[Tensor, int]:
        """Bring episodes to the front; where they share their weights they may be one batch of images."""
        if wanted != "weight" and in_dims[1] is None and kernel.joins_batches and second.dim() == 4:
            first = first.movedim(in_dims[0], 0)
            out = Contraction.apply(first.flatten(0, 1), second, wanted, shape, kernel)
            return out.unflatten(0, first.shape[:2]), 0
        return Contraction.apply(*episodes_first(in_dims, first, second), wanted, shape, kernel), 0


@dataclass(frozen=True)
class NativeConvolution:
    """torch's own kernels on images (..., N, C, H, W) and weights (..., O, C / groups, rows, columns)."""

    joins_batches: ClassVar[bool] = True

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def __call__(self, first: Tensor, second: Tensor, wanted: Role, shape: Size) -> Tensor:
        """Compute one of the three maps of `Contraction`; leading dimensions, over episodes, are looped over."""
        if second.dim() > 4:
            pairs = zip(first.flatten(0, -5).unbind(), second.flatten(0, -5).unbind(), strict=True)
            return torch.stack([self(*pair, wanted, shape) for pair in pairs]).unflatten(0, second.shape[:-4])
        if wanted == "output":
            return torch.conv2d(first, second, None, self.stride, self.padding, self.dilation, self.groups)
        # Of what it gives the gradient of, torch's kernel looks at the shape alone.
        unread = first.new_empty(1)
        image = unread.expand(len(first), *shape[-3:]) if wanted == "image" else second
        weight = unread.expand(shape[-4:]) if wanted == "weight" else second
        to_image, to_weight, _ = torch.ops.aten.convolution_backward(
            first, image, weight, None, self.stride, self.padding, self.dilation, False, (0, 0), self.groups,
            (wanted == "image", wanted == "weight", False),
        )  # fmt: skip
        gradient: Tensor = to_image if wanted == "image" else to_weight
        return gradient


Kernel: TypeAlias = NativeConvolution | PatchConvolution | StripConvolution


class Windows(Function):
    """All windows of images, or the transpose of that map: windows are added up where they overlap.

    (..., H, W, C) to (..., H', W', rows, columns, C) with H' = H - rows + 1, or back.
    """

    @staticmethod
    def forward(x: Tensor, rows: int, columns: int, transposed: bool) -> Tensor:
        """Copy the windows out, or add them up."""
        if not transposed:
            return x.unfold(-3, rows, 1).unfold(-3, columns, 1).movedim(-3, -1).contiguous()
        high, wide, channels = x.shape[-5], x.shape[-4], x.shape[-1]
        windows = x.contiguous()
        images = windows.new_zeros(*windows.shape[:-5], high + rows - 1, wide + columns - 1, channels)
        for row in range(rows):  # one kernel row of one output column at a time lies together in memory
            strip = images.narrow(-3, row, high)
            for column in range(wide):
                strip.narrow(-2, column, columns).add_(windows[..., column, row, :, :])
        return images

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """The map is linear: the size of the window is all that its gradient needs."""
        _, ctx.rows, ctx.columns, ctx.transposed = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Apply the transpose."""
        return Windows.apply(gradient, ctx.rows, ctx.columns, not ctx.transposed), None, None, None

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[Any, ...], x: Tensor, rows: int, columns: int, transposed: bool
    ) -> tuple[Tensor, int]:
        """Leading dimensions pass through, the one over episodes among them."""
        return Windows.apply(x.movedim(in_dims[0], 0), rows, columns, transposed), 0


def _of_patches(patches: Tensor, kernel: Tensor) -> Tensor:
    """Multiply patches (N, H', W', K) by a kernel (K, O): (N, O, H', W'), in memory channels last."""
    out = Contraction.apply(patches.flatten(0, 2), kernel, "output", Size(), PatchConvolution())
    return out.contiguous().unflatten(0, patches.shape[:3]).permute(0, 3, 1, 2)


def episodes_first(in_dims: tuple[Any, ...], *tensors: Tensor) -> list[Tensor]:
    """Give each tensor of a `vmap` rule a leading dimension over episodes, expanded where it has none of its own.

    >>> [tuple(tensor.shape) for tensor in episodes_first((1, None), torch.ones(4, 3), torch.ones(5))]
    [(3, 4), (3, 5)]
    """
    dims = in_dims[: len(tensors)]
    episodes = next(tensor.shape[dim] for tensor, dim in zip(tensors, dims, strict=True) if dim is not None)
    return [
        tensor.expand(episodes, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]


def as_pair(value: int | Sequence[int]) -> Pair:
    """Read a size as torch's functions take it: one number, or one each for rows and columns.

    >>> as_pair(3), as_pair([1, 2])
    ((3, 3), (1, 2))
    """
    if isinstance(value, Integral | int):
        return int(value), int(value)
    sides = [int(side) for side in value]
    return sides[0], sides[-1]
