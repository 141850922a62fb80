"""A convolution and the two gradients of it, as three bilinear maps whose derivatives are one another.

torch differentiates a convolution twice by grouped convolutions of transposed tensors, and under `vmap` makes one
grouped convolution of all tasks; a CPU has fast kernels for neither. Here every map of every order is one of the three
plain kernels, task by task. Leading dimensions of a kernel's weights are tasks: x is (tasks, N, C, H, W) then.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd import Function

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """How the kernel moves over the image."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


class Convolve(Function):
    """Images and weights to outputs."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, window: Window) -> Tensor:
        """Convolve with torch's kernel."""

        def one(x: Tensor, weight: Tensor) -> Tensor:
            return torch.conv2d(x, weight, None, window.stride, window.padding, window.dilation, window.groups)

        return _per_task(one, x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep both factors."""
        x, weight, ctx.window = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Give the gradient of each factor that wants one."""
        x, weight = ctx.saved_tensors
        to_x, to_weight, _ = ctx.needs_input_grad
        return (
            ImageGradient.apply(gradient, weight, x.shape[-2:], ctx.window) if to_x else None,
            WeightGradient.apply(gradient, x, weight.shape[-2:], ctx.window) if to_weight else None,
            None,
        )

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[Any, ...], x: Tensor, weight: Tensor, window: Window) -> tuple[Tensor, int]:
        """Weights that all tasks share see all their images as one batch."""
        return _vmapped(lambda x, weight: Convolve.apply(x, weight, window), in_dims, x, weight)


class ImageGradient(Function):
    """Gradients of outputs and weights to the gradient of the images."""

    @staticmethod
    def forward(gradient: Tensor, weight: Tensor, size: Pair, window: Window) -> Tensor:
        """Run torch's backward kernel for the images."""

        def one(gradient: Tensor, weight: Tensor) -> Tensor:
            x = gradient.new_empty(1).expand(len(gradient), weight.shape[1] * window.groups, *size)
            return _backward_kernel(gradient, x, weight, window, (True, False))[0]

        return _per_task(one, gradient, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep both factors."""
        gradient, weight, _, ctx.window = inputs
        ctx.save_for_backward(gradient, weight)

    @staticmethod
    def backward(ctx: Any, twice: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Give the gradient of each factor that wants one."""
        gradient, weight = ctx.saved_tensors
        to_gradient, to_weight, *_ = ctx.needs_input_grad
        return (
            Convolve.apply(twice, weight, ctx.window) if to_gradient else None,
            WeightGradient.apply(gradient, twice, weight.shape[-2:], ctx.window) if to_weight else None,
            None,
            None,
        )

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[Any, ...], gradient: Tensor, weight: Tensor, size: Pair, window: Window
    ) -> tuple[Tensor, int]:
        """Weights that all tasks share see all their gradients as one batch."""
        return _vmapped(lambda g, weight: ImageGradient.apply(g, weight, size, window), in_dims, gradient, weight)


class WeightGradient(Function):
    """Gradients of outputs and images to the gradient of the weights."""

    @staticmethod
    def forward(gradient: Tensor, x: Tensor, kernel: Pair, window: Window) -> Tensor:
        """Run torch's backward kernel for the weights."""

        def one(gradient: Tensor, x: Tensor) -> Tensor:
            weight = x.new_empty(1).expand(gradient.shape[1], x.shape[1] // window.groups, *kernel)
            return _backward_kernel(gradient, x, weight, window, (False, True))[1]

        return _per_task(one, gradient, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep both factors."""
        gradient, x, _, ctx.window = inputs
        ctx.save_for_backward(gradient, x)

    @staticmethod
    def backward(ctx: Any, twice: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Give the gradient of each factor that wants one."""
        gradient, x = ctx.saved_tensors
        to_gradient, to_x, *_ = ctx.needs_input_grad
        return (
            Convolve.apply(x, twice, ctx.window) if to_gradient else None,
            ImageGradient.apply(gradient, twice, x.shape[-2:], ctx.window) if to_x else None,
            None,
            None,
        )

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[Any, ...], gradient: Tensor, x: Tensor, kernel: Pair, window: Window
    ) -> tuple[Tensor, int]:
        """Each task has a gradient of its own."""
        tasks = gradient.shape[in_dims[0]] if in_dims[0] is not None else x.shape[in_dims[1]]
        gradient, x = (_leading(tensor, dim, tasks) for tensor, dim in zip((gradient, x), in_dims, strict=False))
        return WeightGradient.apply(gradient, x, kernel, window), 0


def _per_task(one: Callable[[Tensor, Tensor], Tensor], first: Tensor, second: Tensor) -> Tensor:
    """Apply a map of two four-dimensional tensors to each pair along the leading dimensions."""
    if second.dim() == 4:
        return one(first, second)
    tasks = second.shape[:-4]
    pairs = zip(first.flatten(0, -5).unbind(), second.flatten(0, -5).unbind(), strict=True)
    return torch.stack([one(*pair) for pair in pairs]).unflatten(0, tasks)


def _backward_kernel(
    gradient: Tensor, x: Tensor, weight: Tensor, window: Window, wanted: tuple[bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.convolution_backward(
        gradient, x, weight, None, window.stride, window.padding, window.dilation, False, (0, 0), window.groups,
        (*wanted, False),
    )  # fmt: skip


def _vmapped(
    apply: Callable[[Tensor, Tensor], Tensor], in_dims: tuple[Any, ...], images: Tensor, weight: Tensor
) -> tuple[Tensor, int]:
    """Bring tasks to the front; weights shared by all tasks take their images as one batch."""
    of_images, of_weight = in_dims[:2]
    if of_weight is None and weight.dim() == 4:
        images = images.movedim(of_images, 0)
        return apply(images.flatten(0, 1), weight).unflatten(0, images.shape[:2]), 0
    tasks = images.shape[of_images] if of_images is not None else weight.shape[of_weight]
    return apply(_leading(images, of_images, tasks), _leading(weight, of_weight, tasks)), 0


def _leading(tensor: Tensor, dim: int | None, tasks: int) -> Tensor:
    return tensor.expand(tasks, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
