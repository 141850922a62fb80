"""The query pass: the one place that knows where batch statistics of the query come from."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from arelu_meta.backbones.norm import statistics_from, uses_support_statistics


def query_logits(forward: Callable[[Tensor], Tensor], network: nn.Module, support_x: Tensor, query_x: Tensor) -> Tensor:
    """Answer the query; norms that take their statistics from the support see the support in the same pass."""
    if not uses_support_statistics(network):
        return forward(query_x)
    with statistics_from(len(support_x)):
        return forward(torch.cat([support_x, query_x]))[len(support_x) :]
