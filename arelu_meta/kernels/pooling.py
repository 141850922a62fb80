"""Max pooling, and the two linear maps that its derivatives of every order are: spread and pick.

torch's own, under `vmap`, copies feature maps between layouts, and its second derivative adds a map of zeros. These
keep the layout they find.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Size, Tensor
from torch.autograd import Function

from arelu_meta.kernels.convolution import Pair, as_pair, episodes_first


@dataclass(frozen=True)
class PoolWindow:
    """How the window moves over the image."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    ceil: bool = False


def max_pool(
    input: Tensor,  # noqa: A002  (torch's name for it)
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Pool as `F.max_pool2d` does; None for what is no batch of images, or is asked for its indices."""
    if input.dim() != 4 or not input.is_floating_point() or return_indices:
        return None
    kernel = as_pair(kernel_size)
    moved = kernel if stride is None or stride == [] or stride == () else as_pair(stride)
    window = PoolWindow(kernel, moved, as_pair(padding), as_pair(dilation), ceil_mode)
    if window == PoolWindow((2, 2), (2, 2)) and not torch.is_grad_enabled():
        return largest_of_four(input)
    return MaxPool.apply(input, window)[0]


def largest_of_four(images: Tensor) -> Tensor:
    """Give the largest number of each 2x2 window of images (..., H, W): no gradient, so no index of it is needed.

    torch's kernel takes the numbers of a window one by one; these are two passes that use the whole width of a core.
    """
    high, wide = (side // 2 * 2 for side in images.shape[-2:])
    rows = torch.maximum(images[..., 0:high:2, :wide], images[..., 1:high:2, :wide])
    return torch.maximum(rows[..., ::2], rows[..., 1::2])


def global_average_pool(axes: int, input: Tensor, output_size: int | Sequence[int]) -> Tensor | None:  # noqa: A002
    """Average over the last axes as `F.adaptive_avg_pool2d` to one number a channel does; None for other sizes.

    torch's own changes the layout of the result in place, which `vmap` does episode by episode.
    """
    sides = (output_size,) if isinstance(output_size, int) else tuple(output_size)
    return input.mean(tuple(range(-axes, 0)), keepdim=True) if set(sides) == {1} else None


class MaxPool(Function):
    """Images (N, C, H, W) to the largest number of each window, and its index in H x W."""

    @staticmethod
    def forward(x: Tensor, window: PoolWindow) -> tuple[Tensor, Tensor]:
        """Run torch's kernel for the layout of the images."""
        return torch.ops.aten.max_pool2d_with_indices(
            x, window.kernel, window.stride, window.padding, window.dilation, window.ceil
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the indices."""
        x, ctx.window = inputs
        _, indices = output
        ctx.shape = x.shape
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _of_indices: Tensor) -> tuple[Tensor, None]:
        """Spread the gradient over the indices."""
        (indices,) = ctx.saved_tensors
        return AtIndices.apply(gradient, indices, ctx.shape, ctx.window, True), None

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[Any, ...], x: Tensor, window: PoolWindow) -> tuple[Any, tuple[int, int]]:
        """Episodes are more images."""
        x = x.movedim(in_dims[0], 0)
        values, indices = MaxPool.apply(x.flatten(0, 1), window)
        return (values.unflatten(0, x.shape[:2]), indices.unflatten(0, x.shape[:2])), (0, 0)


class AtIndices(Function):
    """Pick the numbers that images of a shape (N, C, H, W) have at indices, or `spread` numbers over them.

    Either map is the transpose of the other. Spreading starts from zeros and adds up where windows overlap.
    """

    @staticmethod
    def forward(x: Tensor, indices: Tensor, shape: Size, window: PoolWindow, spread: bool) -> Tensor:
        """Run torch's backward kernel, which reads only the shape and layout of the images; or gather along H x W."""
        first, last = torch.contiguous_format, torch.channels_last
        layout = first if indices.is_contiguous(memory_format=first) else last
        if spread:
            images = torch.empty((len(x), *shape[-3:]), dtype=x.dtype, device=x.device, memory_format=layout)
            return torch.ops.aten.max_pool2d_with_indices_backward(
                x.contiguous(memory_format=layout), images,
                window.kernel, window.stride, window.padding, window.dilation, window.ceil, indices,
            )  # fmt: skip
        if layout == last:
            pixels, wanted = (t.permute(0, 2, 3, 1).flatten(1, 2) for t in (x, indices))
            return pixels.gather(1, wanted).unflatten(1, indices.shape[-2:]).permute(0, 3, 1, 2)
        return x.flatten(2).gather(2, indices.flatten(2)).view_as(indices)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep the indices."""
        _, indices, ctx.shape, ctx.window, ctx.spread = inputs
        ctx.save_for_backward(indices)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Apply the transpose."""
        (indices,) = ctx.saved_tensors
        return AtIndices.apply(gradient, indices, ctx.shape, ctx.window, not ctx.spread), None, None, None, None

    @staticmethod
    def vmap(
        _info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        indices: Tensor,
        shape: Size,
        window: PoolWindow,
        spread: bool,
    ) -> tuple[Tensor, int]:
        """Episodes are more images."""
        x, indices = episodes_first(in_dims, x, indices)
        out = AtIndices.apply(x.flatten(0, 1), indices.flatten(0, 1), shape, window, spread)
        return out.unflatten(0, x.shape[:2]), 0
