"""What adapting to one support set leaves behind: enough to answer queries without adapting again."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn
from torch.func import functional_call

from arelu_meta.learners.inner_loop import Parameters
from arelu_meta.learners.query import query_logits


class Adapted(Protocol):
    """A learner after it has seen one support set."""

    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""


@dataclass(frozen=True, eq=False)
class AdaptedNetwork:
    """The parameters after the last step; the support stays beside for norms that take their statistics from it."""

    network: nn.Module
    parameters: Parameters
    support_x: Tensor

    def logits(self, query_x: Tensor) -> Tensor:
        """Answer queries (queries, C, H, W) with logits (queries, ways)."""
        return query_logits(
            lambda x: functional_call(self.network, self.parameters, (x,)), self.network, self.support_x, query_x
        )
