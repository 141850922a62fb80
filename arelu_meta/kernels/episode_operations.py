"""Operations in the place of torch's own while episodes are computed: right in second order, or faster on a CPU."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from arelu_meta.kernels.convolution import EpisodeConvolutions
from arelu_meta.kernels.norms import batch_norm, instance_norm, layer_norm, weight_norm
from arelu_meta.kernels.pooling import global_average_pool, max_pool


class ExactOperations(TorchFunctionMode):
    """While active, torch's functions that cannot be differentiated twice, or not rightly under `vmap`, are replaced.

    Batch, layer, instance and weight norm are ours; attention is torch's plain kernel and the hard sigmoid its formula,
    as the fused ones have no second derivative. Everything else is torch's.

    >>> with ExactOperations():
    ...     F.layer_norm(torch.tensor([[1.0, 3.0]]), [2]).round(decimals=3).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self) -> None:
        super().__init__()
        self._ours: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
            F.batch_norm: batch_norm,
            F.hardsigmoid: hard_sigmoid,
            F.instance_norm: instance_norm,
            F.layer_norm: layer_norm,
            torch._weight_norm: weight_norm,
            torch.layer_norm: lambda *args, cudnn_enable=True, **kwargs: layer_norm(*args[:5], **kwargs),  # noqa: ARG005
        }
        self._plain_attention = ExitStack()

    def __enter__(self) -> Self:
        # For the whole time: torch's multi-head attention calls the kernel out of the mode's sight.
        self._plain_attention.enter_context(sdpa_kernel(SDPBackend.MATH))
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._plain_attention.close()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Take over where there is something of ours."""
        kwargs = kwargs or {}
        ours = self._ours.get(func)
        result = ours(*args, **kwargs) if ours else None
        return func(*args, **kwargs) if result is None else result


class EpisodeOperations(ExactOperations):
    """The same, and convolutions and max pooling of batches of images that a CPU does faster over many episodes.

    What those cannot do is torch's. What is computed from `kept` images, for which no gradient is needed, is reused in
    every pass.

    >>> with EpisodeOperations():
    ...     torch.vmap(F.conv2d)(torch.ones(2, 1, 1, 4, 4), torch.ones(2, 3, 1, 2, 2)).shape  # of two episodes
    torch.Size([2, 1, 3, 3, 3])
    """

    def __init__(self, *kept: Tensor) -> None:
        super().__init__()
        if torch.is_autocast_enabled("cpu"):  # which casts by the name of torch's functions
            return
        self._ours |= {
            torch.conv2d: EpisodeConvolutions(*kept),
            torch.max_pool2d: max_pool,
            F.adaptive_avg_pool1d: partial(global_average_pool, 1),
            F.adaptive_avg_pool2d: partial(global_average_pool, 2),
            F.max_pool2d: max_pool,  # whose dispatch on `return_indices` is seen before torch's
        }


def hard_sigmoid(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002  (torch's name for it)
    """`F.hardsigmoid` by its formula."""
    result = F.relu6(input + 3) / 6
    return input.copy_(result) if inplace else result
