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

from arelu_meta.kernels.pair import Pair, as_pair
from arelu_meta.kernels.vmap_rules import tasks_first


@dataclass(frozen=True)
class PoolWindow:
    """How the window moves over the image."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    ceil: bool = False

    def arguments(self) -> tuple[Pair, Pair, Pair, Pair, bool]:
        """In torch's order."""
        return self.kernel, self.stride, self.padding, self.dilation, self.ceil


def max_pool(
    input: Tensor,  # noqa: A002  (torch's name for it)
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Pool as `F.max_pool2d` does, or decline: what is no batch of images, or asked for its places."""
    if input.dim() != 4 or not input.is_floating_point() or return_indices:
        return None
    kernel = as_pair(kernel_size)
    moved = kernel if stride is None or stride == [] or stride == () else as_pair(stride)
    return MaxPool.apply(input, PoolWindow(kernel, moved, as_pair(padding), as_pair(dilation), ceil_mode))[0]


class MaxPool(Function):
    """Images (N, C, H, W) to the largest numbers of each window, and where in H x W they were."""

    @staticmethod
    def forward(x: Tensor, window: PoolWindow) -> tuple[Tensor, Tensor]:
        """Run torch's kernel for the layout of the images."""
        return torch.ops.aten.max_pool2d_with_indices(x, *window.arguments())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the places."""
        x, ctx.window = inputs
        _, places = output
        ctx.shape = x.shape
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _of_places: Tensor) -> tuple[Tensor, None]:
        """Spread the gradient over the places."""
        (places,) = ctx.saved_tensors
        return Spread.apply(gradient, places, ctx.shape, ctx.window), None

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[Any, ...], x: Tensor, window: PoolWindow) -> tuple[Any, tuple[int, int]]:
        """Tasks are more images."""
        x = x.movedim(in_dims[0], 0)
        values, places = MaxPool.apply(x.flatten(0, 1), window)
        return (values.unflatten(0, x.shape[:2]), places.unflatten(0, x.shape[:2])), (0, 0)


class Spread(Function):
    """Numbers of windows to their places in images of zeros; added up where windows overlap."""

    @staticmethod
    def forward(numbers: Tensor, places: Tensor, shape: Size, window: PoolWindow) -> Tensor:
        """Run torch's backward kernel, which looks at the shape and layout of the images only."""
        layout = _layout(places)
        images = torch.empty(
            (len(numbers), *shape[-3:]), dtype=numbers.dtype, device=numbers.device, memory_format=layout
        )
        return torch.ops.aten.max_pool2d_with_indices_backward(
            numbers.contiguous(memory_format=layout), images, *window.arguments(), places
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep the places."""
        _, places, _, ctx.window = inputs
        ctx.save_for_backward(places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Pick from the places."""
        (places,) = ctx.saved_tensors
        return Pick.apply(gradient, places, ctx.window), None, None, None

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[Any, ...], numbers: Tensor, places: Tensor, shape: Size, window: PoolWindow
    ) -> tuple[Tensor, int]:
        """Tasks are more images."""
        numbers, places = tasks_first(in_dims, numbers, places)
        out = Spread.apply(numbers.flatten(0, 1), places.flatten(0, 1), shape, window)
        return out.unflatten(0, numbers.shape[:2]), 0


class Pick(Function):
    """The transpose of `Spread`: what images have in the places."""

    @staticmethod
    def forward(images: Tensor, places: Tensor, _window: PoolWindow) -> Tensor:
        """Gather along H x W."""
        if _layout(places) == torch.channels_last:
            pixels, wanted = (t.permute(0, 2, 3, 1).flatten(1, 2) for t in (images, places))
            return pixels.gather(1, wanted).unflatten(1, places.shape[-2:]).permute(0, 3, 1, 2)
        return images.flatten(2).gather(2, places.flatten(2)).view_as(places)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep the places."""
        images, places, ctx.window = inputs
        ctx.shape = images.shape
        ctx.save_for_backward(places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Spread over the places."""
        (places,) = ctx.saved_tensors
        return Spread.apply(gradient, places, ctx.shape, ctx.window), None, None

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[Any, ...], images: Tensor, places: Tensor, window: PoolWindow
    ) -> tuple[Tensor, int]:
        """Tasks are more images."""
        images, places = tasks_first(in_dims, images, places)
        out = Pick.apply(images.flatten(0, 1), places.flatten(0, 1), window)
        return out.unflatten(0, images.shape[:2]), 0


def _layout(images: Tensor) -> torch.memory_format:
    first = torch.contiguous_format
    return first if images.is_contiguous(memory_format=first) else torch.channels_last
