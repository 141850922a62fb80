"""A convolution and the two gradients of it, as three bilinear maps whose derivatives are one another.

torch differentiates a convolution twice by grouped convolutions of transposed tensors, and under `vmap` makes one
grouped convolution of all tasks; a CPU has fast kernels for neither. Here every map of every order is one of three
plain kernels, which a `Kernel` gives.
"""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Size, Tensor
from torch.autograd import Function

from arelu_meta.kernels.vmap_rules import tasks_first


class Kernel(Protocol):
    """Three maps of tensors that both have the same leading dimensions, those over tasks, or none."""

    def convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        """Images and weights to outputs."""

    def to_images(self, gradient: Tensor, weight: Tensor, shape: Size) -> Tensor:
        """Gradients of outputs, and weights, to the gradient of images that have this shape but for leading ones."""

    def to_weight(self, gradient: Tensor, x: Tensor, shape: Size) -> Tensor:
        """Gradients of outputs, and images, to the gradient of weights that have this shape but for leading ones."""

    def as_one_batch(self, weight: Tensor) -> bool:
        """Tell whether tasks that share these weights are taken as one batch of images, along the first dimension."""


class Convolve(Function):
    """Images and weights to outputs."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, kernel: Kernel) -> Tensor:
        """Convolve."""
        return kernel.convolve(x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep both factors."""
        x, weight, ctx.kernel = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Give the gradient of each factor that wants one."""
        x, weight = ctx.saved_tensors
        to_x, to_weight, _ = ctx.needs_input_grad
        return (
            ImageGradient.apply(gradient, weight, x.shape, ctx.kernel) if to_x else None,
            WeightGradient.apply(gradient, x, weight.shape, ctx.kernel) if to_weight else None,
            None,
        )

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[Any, ...], x: Tensor, weight: Tensor, kernel: Kernel) -> tuple[Tensor, int]:
        """Bring tasks to the front."""
        return _vmapped(lambda x, weight: Convolve.apply(x, weight, kernel), kernel, in_dims, x, weight)


class ImageGradient(Function):
    """Gradients of outputs and weights to the gradient of the images."""

    @staticmethod
    def forward(gradient: Tensor, weight: Tensor, shape: Size, kernel: Kernel) -> Tensor:
        """Run the kernel for the images."""
        return kernel.to_images(gradient, weight, shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep both factors."""
        gradient, weight, _, ctx.kernel = inputs
        ctx.save_for_backward(gradient, weight)

    @staticmethod
    def backward(ctx: Any, twice: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Give the gradient of each factor that wants one."""
        gradient, weight = ctx.saved_tensors
        to_gradient, to_weight, *_ = ctx.needs_input_grad
        return (
            Convolve.apply(twice, weight, ctx.kernel) if to_gradient else None,
            WeightGradient.apply(gradient, twice, weight.shape, ctx.kernel) if to_weight else None,
            None,
            None,
        )

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[Any, ...], gradient: Tensor, weight: Tensor, shape: Size, kernel: Kernel
    ) -> tuple[Tensor, int]:
        """Bring tasks to the front."""
        return _vmapped(
            lambda g, weight: ImageGradient.apply(g, weight, shape, kernel), kernel, in_dims, gradient, weight
        )


class WeightGradient(Function):
    """Gradients of outputs and images to the gradient of the weights."""

    @staticmethod
    def forward(gradient: Tensor, x: Tensor, shape: Size, kernel: Kernel) -> Tensor:
        """Run the kernel for the weights."""
        return kernel.to_weight(gradient, x, shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        """Keep both factors."""
        gradient, x, _, ctx.kernel = inputs
        ctx.save_for_backward(gradient, x)

    @staticmethod
    def backward(ctx: Any, twice: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Give the gradient of each factor that wants one."""
        gradient, x = ctx.saved_tensors
        to_gradient, to_x, *_ = ctx.needs_input_grad
        return (
            Convolve.apply(x, twice, ctx.kernel) if to_gradient else None,
            ImageGradient.apply(gradient, twice, x.shape, ctx.kernel) if to_x else None,
            None,
            None,
        )

    @staticmethod
    def vmap(
        _info: Any, in_dims: tuple[Any, ...], gradient: Tensor, x: Tensor, shape: Size, kernel: Kernel
    ) -> tuple[Tensor, int]:
        """Each task has a gradient of its own."""
        return WeightGradient.apply(*tasks_first(in_dims, gradient, x), shape, kernel), 0


def _vmapped(
    apply: Callable[[Tensor, Tensor], Tensor], kernel: Kernel, in_dims: tuple[Any, ...], images: Tensor, weight: Tensor
) -> tuple[Tensor, int]:
    """Bring tasks to the front; weights shared by all tasks may take their images as one batch."""
    of_images, of_weight = in_dims[:2]
    if of_weight is None and kernel.as_one_batch(weight):
        images = images.movedim(of_images, 0)
        return apply(images.flatten(0, 1), weight).unflatten(0, images.shape[:2]), 0
    return apply(*tasks_first(in_dims, images, weight)), 0
