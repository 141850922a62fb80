"""Engines: three ways to compute the logits of adapted networks, differentiable in the initial parameters.

`func` is torch.func, vectorised over episodes; `higher` and `learn2learn` are the libraries of those names, episode by
episode.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from arelu_meta.registry import Entry, Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from arelu_meta.data.episodes import Episode
    from arelu_meta.learners.functional_network import Parameters
    from arelu_meta.learners.inner_loop import InnerRule

__all__ = ["Engine", "EngineEntry", "build", "names"]


class Engine(Protocol):
    """Adapt a network to a batch of episodes and answer their queries."""

    @property
    def recordable(self) -> bool:
        """Whether all steps run the same operations, so that they can be recorded."""

    @property
    def note(self) -> str:
        """Why a network is not computed in the usual way; empty where it is."""

    def prepare(self, network: "nn.Module", rule: "InnerRule", episodes: "Episode") -> bool:
        """Find out what can be known before the first step: checks that would otherwise be a part of it.

        Args:
            network: maps images (N, C, H, W) to logits (N, ways).
            rule: how to adapt.
            episodes: a batch with a leading axis over episodes.

        Returns:
            Whether all episodes are computed at once, so that `rule.start` can be had.

        Raises:
            InputError: a rule that this engine cannot follow.
        """

    def logits(
        self, network: "nn.Module", rule: "InnerRule", episodes: "Episode", *, every_step: bool = False
    ) -> "Tensor":
        """Adapt to each support set and answer its queries.

        Args:
            network: maps images (N, C, H, W) to logits (N, ways).
            rule: how to adapt.
            episodes: a batch with a leading axis over episodes.
            every_step: whether to answer before the first and after each step, or after the last alone.

        Returns:
            Query logits (episodes, points, queries, ways), differentiable in the network's parameters.

        Raises:
            InputError: a rule that this engine cannot follow.
        """

    def adapted_parameters(self, network: "nn.Module", rule: "InnerRule", episodes: "Episode") -> "Parameters":
        """Adapt to each support set.

        Args:
            network: maps images (N, C, H, W) to logits (N, ways).
            rule: how to adapt.
            episodes: a batch with a leading axis over episodes.

        Returns:
            The parameters after the last step by name, each (episodes, ...).

        Raises:
            InputError: a rule that this engine cannot follow.
        """


@dataclass(frozen=True)
class EngineEntry(Entry):
    """A named engine."""


_REGISTRY = Registry[EngineEntry]("engine")
_REGISTRY.add(
    EngineEntry("func", "arelu_meta.learners.engines.func_engine:FuncEngine", "torch.func, vectorised over episodes"),
    EngineEntry("higher", "arelu_meta.learners.engines.higher_engine:HigherEngine", "higher; inner Adam"),
    EngineEntry(
        "learn2learn", "arelu_meta.learners.engines.learn2learn_engine:Learn2LearnEngine", "learn2learn's MAML wrapper"
    ),
)


def names() -> list[str]:
    """Names of all engines."""
    return _REGISTRY.names()


def build(name: str) -> Engine:
    """Make an engine by name.

    Args:
        name: one of `names()`.

    Raises:
        InputError: an unknown name, or a library that is not installed.

    >>> build("func").recordable
    True
    """
    engine: Engine = _REGISTRY[name].load()()
    return engine
