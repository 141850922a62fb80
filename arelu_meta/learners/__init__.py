"""Learners by name: how a network adapts to an episode, and what the outer step learns from it.

A new one is one file here and one line below; the contract suite then runs over it. Listing them imports no torch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arelu_meta.errors import InputError, unknown
from arelu_meta.learners import engines
from arelu_meta.registry import Entry, Registry

if TYPE_CHECKING:
    from torch import nn

    from arelu_meta.learners.learner import Learner

ALL_ENGINES = ("func", "higher", "learn2learn")


@dataclass(frozen=True)
class LearnerEntry(Entry):
    """A named method: the engines it runs on, whether it is trained at all, and the publication it comes from."""

    engines: tuple[str, ...] = ("func",)
    trained: bool = True
    source: str = ""
    by_gradient: bool = True
    """Whether a network with a head adapts by gradient steps; otherwise features are compared."""


def _entry(
    name: str, target: str, summary: str, source: str, engines: tuple[str, ...] = ("func",), **facts: bool
) -> LearnerEntry:
    return LearnerEntry(name, f"arelu_meta.learners.{target}", summary, engines=engines, source=source, **facts)


_REGISTRY = Registry[LearnerEntry]("method")
_REGISTRY.add(
    _entry("maml", "gradient:maml", "second-order MAML", "Finn 2017, arXiv 1703.03400", ALL_ENGINES),
    _entry(
        "fomaml", "gradient:fomaml", "MAML with constant inner gradients", "Finn 2017, arXiv 1703.03400", ALL_ENGINES
    ),
    _entry("anil", "gradient:anil", "only the head adapts", "Raghu 2020, arXiv 1909.09157", ("func", "higher")),
    _entry("boil", "gradient:boil", "only the body adapts", "Oh 2021, arXiv 2008.08882", ("func", "higher")),
    _entry("meta_sgd", "meta_sgd:MetaSgd", "one learned rate per weight", "Li 2017, arXiv 1707.09835"),
    _entry(
        "mamlpp", "mamlpp:MamlPlusPlus", "rates per layer and step, multi-step loss", "Antoniou 2019, arXiv 1810.09502"
    ),
    _entry("reptile", "reptile:Reptile", "move towards adapted weights", "Nichol 2018, arXiv 1803.02999"),
    _entry(
        "protonet",
        "prototypes:ProtoNet",
        "nearest class mean of learned features",
        "Snell 2017, arXiv 1703.05175",
        by_gradient=False,
    ),
    _entry(
        "features", "prototypes:ProtoNet", "floor: class mean of random features", "", trained=False, by_gradient=False
    ),
    _entry("centroid", "prototypes:PixelCentroid", "floor: class mean of pixels", "", trained=False, by_gradient=False),
)


def names() -> list[str]:
    """Names of all methods."""
    return _REGISTRY.names()


def entries() -> list[LearnerEntry]:
    """All methods with engines and sources."""
    return list(_REGISTRY)


def entry(name: str) -> LearnerEntry:
    """One method's entry."""
    return _REGISTRY[name]


def check_engine(method: str, engine: str) -> None:
    """Refuse a method/engine pair that does not exist."""
    supported = _REGISTRY[method].engines
    if engine not in engines.names():
        raise unknown("engine", engine, engines.names())
    if engine not in supported:
        raise InputError(f"method {method!r} does not run on engine {engine!r}; use --engine {' or '.join(supported)}")


def build(method: str, network: "nn.Module", *, engine: str = "func", **options: Any) -> "Learner":
    """Make a learner around a network; `options` are inner_lr, inner_steps and what else the method takes."""
    check_engine(method, engine)
    learner: Learner = _REGISTRY[method].load()(network, engine=engines.build(engine), **options)
    return learner
