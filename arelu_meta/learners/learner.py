"""What the loops need of a learner."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.learners.adapted import Adapted


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """Query loss (mean over tasks) and accuracy of each task, of one outer step before its update."""

    loss: Tensor
    accuracies: Tensor


class Learner(Protocol):
    """A network, a way to fill its gradients from episodes, and its accuracy as it adapts."""

    network: nn.Module
    outer_optimizer: Literal["adam", "sgd"]

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Give all that the outer optimizer trains: the network and whatever else the learner learns."""

    def state(self) -> nn.Module:
        """Give a module whose state_dict holds all that is learned."""

    def meta_step(self, episodes: Episode, *, progress: float, share: float = 1.0) -> StepOutcome:
        """Add the outer gradient of these episodes, times `share`, to `.grad`; `progress` runs from 0 to 1."""

    def adapt(
        self, support_x: Tensor, support_y: Tensor, *, steps: int | None = None, lr: float | None = None
    ) -> Adapted:
        """Adapt as in tests to one support set, (N, C, H, W) and (N,); other steps or another rate where asked."""

    def query_logits(self, episodes: Episode) -> Tensor:
        """Adapt as in tests and answer the queries, (tasks, queries, ways)."""

    def accuracy_by_step(self, episodes: Episode) -> Tensor:
        """Give each task's query accuracy before adaptation and after every step, (tasks, steps + 1)."""

    def final_accuracy(self, episodes: Episode) -> Tensor:
        """Give each task's query accuracy after the last step alone, (tasks,)."""
