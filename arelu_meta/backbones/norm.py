"""Normalisation, and where its statistics come from.

torch's own batch norm is wrong in second order under `vmap` (torch 2.15): the meta-gradient of what stands before it is
off by percents. `BatchStatisticsNorm` is arithmetic whose gradient is arithmetic again (`standardise.py`), exact in
every order.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from arelu_meta.errors import InputError, unknown
from arelu_meta.kernels.standardise import standardise

Norm = Literal["batch", "batch_support", "running", "group", "none"]
GROUPS = 8
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_STATISTICS_ROWS: ContextVar[int | None] = ContextVar("statistics_rows", default=None)


class BatchStatisticsNorm(nn.Module):
    """Batch norm that always uses the statistics of the batch at hand, (N, C, ...) -> the same.

    Running statistics would leak between episodes. With `support_only` the query is normalised with the support's
    statistics; otherwise with its own, which is transductive: queries see each other.

    Args:
        channels: C
        support_only: take the statistics of the first rows, as `statistics_from` says
        eps: added to the variance
        affine: learn a weight and a bias per channel
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, channels: int, *, support_only: bool = False, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.register_parameter("weight", nn.Parameter(torch.ones(channels)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(channels)) if affine else None)
        self.channels, self.support_only, self.eps = channels, support_only, eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each channel over the batch and the plane, with the statistics of the first rows or of all.

        Half precision is computed in float32: its sums over many pixels would lose what they are about.
        """
        if x.dtype in (torch.float16, torch.bfloat16):
            return self.forward(x.float()).to(x.dtype)
        rows = _STATISTICS_ROWS.get() if self.support_only else None
        ones = x.new_ones(self.channels)
        weight = ones if self.weight is None else self.weight
        bias = torch.zeros_like(ones) if self.bias is None else self.bias
        if rows is None:
            return standardise(x, weight, bias, self.eps)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        shape = [1, -1, *(1 for _ in axes[1:])]
        centred = x - x[:rows].mean(axes, keepdim=True)
        variance = centred[:rows].square().mean(axes, keepdim=True)
        return torch.addcmul(bias.view(shape), centred, weight.view(shape) * torch.rsqrt(variance + self.eps))

    def extra_repr(self) -> str:
        """Show size and source of the statistics in the printed network."""
        return f"{self.channels}, support_only={self.support_only}"


@contextmanager
def statistics_from(rows: int) -> Iterator[None]:
    """Let norms that use the support's statistics take them from the first rows of the batch."""
    token = _STATISTICS_ROWS.set(rows)
    try:
        yield
    finally:
        _STATISTICS_ROWS.reset(token)


def uses_support_statistics(network: nn.Module) -> bool:
    """Tell whether a norm of the network wants the support beside the query."""
    return any(isinstance(module, BatchStatisticsNorm) and module.support_only for module in network.modules())


def is_transductive(network: nn.Module) -> bool:
    """Tell whether queries see each other: a norm takes its statistics from the query batch."""
    return any(
        (isinstance(module, BatchStatisticsNorm) and not module.support_only)
        or (isinstance(module, BATCH_NORMS) and module.running_mean is None)
        for module in network.modules()
    )


def make_norm(norm: Norm, channels: int) -> nn.Module:
    """Make a normalisation layer.

    `batch`          statistics of the batch at hand (transductive on a query batch)
    `batch_support`  statistics of the support set
    `running`        torch's batch norm with running statistics; not for learners that adapt by gradient
    `group`          eight groups of channels, each image by itself
    `none`           no normalisation
    """
    if norm == "batch" or norm == "batch_support":
        return BatchStatisticsNorm(channels, support_only=norm == "batch_support")
    if norm == "running":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        if channels % GROUPS:
            raise InputError(f"norm 'group' needs a multiple of {GROUPS} channels, not {channels}")
        return nn.GroupNorm(GROUPS, channels)
    if norm == "none":
        return nn.Identity()
    raise unknown("norm", norm, get_args(Norm))
