"""Operations that a CPU does faster over many episodes than `vmap` of torch's own would."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from arelu_meta.kernels.convolution import EpisodeConvolutions
from arelu_meta.kernels.pooling import max_pool


class EpisodeOperations(TorchFunctionMode):
    """While active, convolutions and max pooling of batches of images are ours; what those cannot do is torch's.

    What is computed from `kept` images, for which no gradient is needed, is reused in every pass.

    >>> with EpisodeOperations():
    ...     torch.vmap(F.conv2d)(torch.ones(2, 1, 1, 4, 4), torch.ones(2, 3, 1, 2, 2)).shape  # of two episodes
    torch.Size([2, 1, 3, 3, 3])
    """

    def __init__(self, *kept: Tensor) -> None:
        super().__init__()
        self._ours: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
            torch.conv2d: EpisodeConvolutions(*kept),
            torch.max_pool2d: max_pool,
            F.max_pool2d: max_pool,  # whose dispatch on `return_indices` is seen before torch's
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Take over where there is something of ours."""
        kwargs = kwargs or {}
        ours = None if torch.is_autocast_enabled("cpu") else self._ours.get(func)  # casts are by the name of torch's
        result = ours(*args, **kwargs) if ours else None
        return func(*args, **kwargs) if result is None else result
