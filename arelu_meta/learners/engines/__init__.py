"""Engines: three ways to compute the logits of adapted networks, differentiable in the initial parameters.

`func` is torch.func, vectorised over tasks; `higher` and `learn2learn` are the libraries of those names, task by task.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from arelu_meta.registry import Entry, Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from arelu_meta.data.episodes import Episode
    from arelu_meta.learners.inner_loop import InnerRule, Parameters


class Engine(Protocol):
    """Adapt a network to a batch of episodes and answer their queries."""

    def logits(
        self, network: "nn.Module", rule: "InnerRule", episodes: "Episode", *, every_step: bool = False
    ) -> "Tensor":
        """Give query logits (tasks, points, queries, ways): after the last step, or before the first and after each."""

    def adapted(self, network: "nn.Module", rule: "InnerRule", episodes: "Episode") -> "Parameters":
        """Give the parameters after the last step, each (tasks, ...)."""


@dataclass(frozen=True)
class EngineEntry(Entry):
    """A named engine."""


_REGISTRY = Registry[EngineEntry]("engine")
_REGISTRY.add(
    EngineEntry("func", "arelu_meta.learners.engines.func_engine:FuncEngine", "torch.func, vectorised over tasks"),
    EngineEntry("higher", "arelu_meta.learners.engines.higher_engine:HigherEngine", "higher; inner Adam"),
    EngineEntry(
        "learn2learn", "arelu_meta.learners.engines.learn2learn_engine:Learn2LearnEngine", "learn2learn's MAML wrapper"
    ),
)


def names() -> list[str]:
    """Names of all engines."""
    return _REGISTRY.names()


def build(name: str) -> Engine:
    """Make an engine by name."""
    engine: Engine = _REGISTRY[name].load()()
    return engine
