"""`two_slopes`: the piecewise linear function that AReLU, ELSA, PReLU and the controls have in common.

The formula has a handful of passes over the feature map where ReLU has one, and on a CPU a pass costs what its memory
traffic costs. Large feature maps are therefore done block by block: all passes but the first find the block in the
cache. Only x is kept for the backward pass.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# TorchScript compiles the formula: it knows no autograd functions, and stumbles over `type: ignore` inside a function.
is_scripting = torch.jit.is_scripting  # type: ignore[attr-defined]
BLOCK = 2**17  # numbers: half a megabyte, two to four of which fit a core's cache
WORTHWHILE = 2**15  # below, the whole feature map is in the cache anyway


def two_slopes(x: Tensor, negative: Tensor | float, positive: Tensor | float) -> Tensor:
    """Multiply by `negative` below zero and by `positive` from zero on; NaN passes through.

    The slopes are chosen first and multiplied once, so that an infinite x on one side leaves the other side's slope a
    finite gradient. They take the type of x: scalars learned in float32 do not widen a bfloat16 feature map.

    Args:
        x: numbers of any shape.
        negative: slope below zero, a number or a tensor that broadcasts against x.
        positive: slope from zero on, likewise.

    Returns:
        A tensor of the shape and type of x.

    >>> two_slopes(torch.tensor([-2.0, 0.0, 2.0]), 0.5, 3.0)
    tensor([-1., 0., 6.])
    """
    below, above = _of_type(negative, x), _of_type(positive, x)
    if not is_scripting():  # the form that TorchScript skips whole
        if can_be_blocked(x, below, above):
            return TwoSlopes.apply(x, below, above)
        if without_gradient(x):  # the same numbers in passes that use the whole width of a core, which `where` does not
            return x.clamp(max=0).mul(below).addcmul(x.clamp(min=0), above)
    return x * torch.where(x < 0, below, above)


def _of_type(slope: Tensor | float, x: Tensor) -> Tensor:
    if isinstance(slope, Tensor):
        return slope.to(x.dtype)
    return torch.tensor(slope, dtype=x.dtype, device=x.device)


def can_be_blocked(x: Tensor, negative: Tensor, positive: Tensor) -> bool:
    """Tell whether x is large, dense and on a CPU, with one slope on each side, the positive one above zero."""
    return (
        not torch.compiler.is_compiling()  # the compiler fuses the formula, and an export must not look at sizes
        # A trace would keep the kernels of the forward pass without their gradients.
        and not torch.jit.is_tracing()  # type: ignore[attr-defined]
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and x.numel() >= WORTHWHILE
        and negative.dim() == positive.dim() == 0
        and not torch._C._are_functorch_transforms_active()  # slopes may be one per episode
        # in memory without gap or overlap, channels first or last
        and (x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)))
        and positive.item() > 0
    )


def without_gradient(x: Tensor) -> bool:
    """Tell whether slopes of several episodes at once are applied on a CPU, and nothing is differentiated."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return x.device.type == "cpu" and torch._C._are_functorch_transforms_active()


class TwoSlopes(Function):
    """x times its slope. The gradient at zero is the positive slope, as in the formula.

    `forward` takes the context itself: with a `setup_context` torch binds every call to a signature, which small maps
    notice, and the transforms that need one are not given this function.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, negative: Tensor, positive: Tensor) -> Tensor:
        """Compute positive * leaky_relu(x, negative / positive), and keep x; the slopes are two numbers."""
        ctx.save_for_backward(x, negative, positive)
        slope, scale = (negative / positive).item(), positive.item()
        out = torch.empty_like(x)
        for block, result in zip(_blocks(x), _blocks(out), strict=True):
            torch.ops.aten.leaky_relu.out(block, slope, out=result).mul_(scale)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Give the gradients of x and of both slopes; by the formula where they are to be differentiated again."""
        x, negative, positive = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _gradients(x, negative, positive, gradient)
        in_order = gradient if gradient.stride() == x.stride() else torch.empty_like(x).copy_(gradient)
        return _blocked_gradients(x, negative, positive, in_order)


def _gradients(x: Tensor, negative: Tensor, positive: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give the gradients in operations that autograd differentiates in turn."""
    below = x < 0
    zero = torch.zeros((), dtype=x.dtype)
    moved = gradient * x
    to_negative, to_positive = torch.where(below, moved, zero).sum(), torch.where(below, zero, moved).sum()
    return gradient * torch.where(below, negative, positive), to_negative, to_positive


def _blocked_gradients(
    x: Tensor, negative: Tensor, positive: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    slope, step = negative.item(), (positive - negative).item()
    just_below_zero = -torch.finfo(x.dtype).smallest_normal * torch.finfo(x.dtype).eps  # the kernel compares by <=
    to_x = torch.empty_like(x)
    above, total = [], []
    for block, up, down in zip(_blocks(x), _blocks(gradient), _blocks(to_x), strict=True):
        torch.ops.aten.threshold_backward.grad_input(up, block, just_below_zero, grad_input=down)
        above.append(torch.dot(block, down))
        total.append(torch.dot(block, up))
        down.mul_(step).add_(up, alpha=slope)
    to_positive, to_both = _sum(above), _sum(total)
    if not math.isfinite(to_both.item()):  # an infinite x spoils only its own side
        return _gradients(x, negative, positive, gradient)
    return to_x, to_both - to_positive, to_positive


def _blocks(x: Tensor) -> tuple[Tensor, ...]:
    """Cut into blocks in the order of memory."""
    whole = x.as_strided((x.numel(),), (1,))
    return (whole,) if x.numel() <= BLOCK else whole.split(BLOCK)


def _sum(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()
