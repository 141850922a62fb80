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

__all__ = ["LearnerEntry", "build", "check_engine", "engines", "entries", "entry", "names"]

ALL_ENGINES = ("func", "higher", "learn2learn")
INNER_LOOP_SETTINGS = ("inner_lr", "inner_steps", "test_steps", "clip_norm", "inner_optimizer")


@dataclass(frozen=True)
class LearnerEntry(Entry):
    """A named method and what is known of it before it is imported."""

    engines: tuple[str, ...] = ("func",)
    """engines it runs on"""
    needs_training: bool = True
    """whether there is anything to train; floors have nothing"""
    source: str = ""
    """publication it comes from"""
    by_gradient: bool = True
    """whether a network with a head adapts by gradient steps; otherwise features are compared"""

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings of the inner loop that the method takes; it has no use for others."""
        return INNER_LOOP_SETTINGS if self.by_gradient else ()


def _entry(
    name: str, target: str, summary: str, source: str, engines: tuple[str, ...] = ("func",), **facts: bool
) -> LearnerEntry:
    return LearnerEntry(name, f"arelu_meta.learners.{target}", summary, engines=engines, source=source, **facts)


_REGISTRY = Registry[LearnerEntry]("method")
_REGISTRY.add(
    _entry("maml", "maml:maml", "second-order MAML", "Finn 2017, arXiv 1703.03400", ALL_ENGINES),
    _entry("fomaml", "maml:fomaml", "MAML with constant inner gradients", "Finn 2017, arXiv 1703.03400", ALL_ENGINES),
    _entry("anil", "maml:anil", "only the head adapts", "Raghu 2020, arXiv 1909.09157", ("func", "higher")),
    _entry("boil", "maml:boil", "only the body adapts", "Oh 2021, arXiv 2008.08882", ("func", "higher")),
    _entry("meta_sgd", "learned_rates:MetaSgd", "one learned rate per weight", "Li 2017, arXiv 1707.09835"),
    _entry(
        "mamlpp",
        "learned_rates:MamlPlusPlus",
        "rates per layer and step, multi-step loss",
        "Antoniou 2019, arXiv 1810.09502",
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
        "features",
        "prototypes:ProtoNet",
        "floor: class mean of random features",
        "",
        by_gradient=False,
        needs_training=False,
    ),
    _entry(
        "centroid",
        "prototypes:PixelCentroid",
        "floor: class mean of pixels",
        "",
        by_gradient=False,
        needs_training=False,
    ),
)


def names() -> list[str]:
    """Names of all methods."""
    return _REGISTRY.names()


def entries() -> list[LearnerEntry]:
    """All methods with engines and sources."""
    return list(_REGISTRY)


def entry(name: str) -> LearnerEntry:
    """One method's entry.

    Args:
        name: name of a method, such as `maml`

    >>> entry("maml").engines
    ('func', 'higher', 'learn2learn')
    """
    return _REGISTRY[name]


def check_engine(method: str, engine: str) -> None:
    """Refuse a method/engine pair that does not exist.

    Args:
        method: name of a method, such as `maml`
        engine: name of an engine, such as `func`

    Raises:
        InputError: an unknown name, or a method that does not run on the engine.

    >>> check_engine("maml", "higher")
    """
    supported = _REGISTRY[method].engines
    if engine not in engines.names():
        raise unknown("engine", engine, engines.names())
    if engine not in supported:
        remedy = " or ".join(f"`engine={name!r}`" for name in supported)
        raise InputError(f"method {method!r} does not run on engine {engine!r}; use {remedy}")


def build(method: str, network: "nn.Module", *, engine: str = "func", **options: Any) -> "Learner":
    """Make a learner around a network.

    Args:
        method: one of `names()`.
        network: any module that maps images (N, C, H, W) to logits (N, ways); for `protonet` and `features` it also
            needs a method `features` that maps images to (N, d).
        engine: what computes the inner loop of methods that adapt by gradient: "func", "higher" or "learn2learn".
        options: `chunk`, and for methods that adapt by gradient `inner_lr`, `inner_steps`, `test_steps`, `clip_norm`,
            `inner_optimizer` and `loss`, as in `arelu_meta.learners.maml.maml`.

    Returns:
        A learner: `meta_step` fills gradients from episodes, `adapt` answers queries of one support set.

    Raises:
        InputError: an unknown name, or a pair of method and engine that does not exist.
        TypeError: an option that the method does not take.

    >>> from torch import nn
    >>> learner = build("anil", nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), inner_lr=0.1, inner_steps=5)
    >>> sorted(learner.rule.moving)
    ['1.bias', '1.weight']
    """
    check_engine(method, engine)
    chosen = _REGISTRY[method]
    if chosen.by_gradient:
        options["engine"] = engines.build(engine)
    learner: Learner = chosen.load()(network, **options)
    return learner
