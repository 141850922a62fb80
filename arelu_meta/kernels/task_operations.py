"""Operations that a CPU does faster over tasks than `vmap` of torch's own would."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from arelu_meta.kernels.pooling_maps import max_pool
from arelu_meta.kernels.task_convolutions import TaskConvolutions


class TaskOperations(TorchFunctionMode):
    """While active, convolutions and max pooling of batches of images are ours; what those cannot do is torch's."""

    def __init__(self) -> None:
        super().__init__()
        self._convolutions = TaskConvolutions()
        self._ours: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
            torch.conv2d: self._convolutions.convolve,
            torch.max_pool2d: max_pool,
            F.max_pool2d: max_pool,  # whose dispatch on `return_indices` is seen before torch's
        }

    def keep(self, images: Tensor) -> None:
        """Reuse what is made of these images in every pass; no gradient is asked for them."""
        self._convolutions.keep(images)

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Take over where there is something of ours."""
        kwargs = kwargs or {}
        ours = None if torch.is_autocast_enabled("cpu") else self._ours.get(func)  # casts are by the name of torch's
        done = ours(*args, **kwargs) if ours else None
        return func(*args, **kwargs) if done is None else done
