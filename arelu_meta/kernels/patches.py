"""Windows of images, and their transpose."""

from typing import Any

from torch import Tensor
from torch.autograd import Function


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
