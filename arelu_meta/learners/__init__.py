"""Learners by name: how a network adapts to an episode, and what the outer step learns from it.

A new one is one file here and one line below; the contract suite then runs over it. One of your own is a class or a
function: `@learners.register("mine")`, `package.module:Class`, the class itself, or an entry point of a package in the
group `arelu_meta.learners` (docs/extending.md). Listing them imports no torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from arelu_meta.errors import InputError, first_line, unknown
from arelu_meta.learners import engines
from arelu_meta.registry import Entry, Registry, check_accepts, parameters_of

if TYPE_CHECKING:
    from torch import nn

    from arelu_meta.learners.learner import Learner

Method: TypeAlias = "str | Callable[..., Learner]"

__all__ = ["LearnerEntry", "Method", "build", "check_engine", "engines", "entries", "entry", "names", "register"]

ALL_ENGINES = ("func", "higher", "learn2learn")
PARTS = ("all", "head", "body", "norm", "activation", "lora")  # of a network: what may adapt, several joined by "+"
LORA_RANK = 4
INNER_LOOP_SETTINGS = ("inner_lr", "inner_steps", "test_steps", "clip_norm", "inner_optimizer")
OTHER_SETTINGS = ("adapt", "head", "lora_rank")  # that some methods take


@dataclass(frozen=True)
class LearnerEntry(Entry):
    """A named method and what is known of it before it is imported.

    Of a method of your own, `entry` takes these facts from attributes of the same names of its class or function.
    """

    engines: tuple[str, ...] = ()
    """engines it runs on; none: not known before it is imported. Of your own: ("func",) unless it says otherwise"""
    needs_training: bool = True
    """whether there is anything to train; floors and classifiers on frozen features have nothing"""
    needs_validation: bool = False
    """whether it makes a choice on validation episodes, which the protocol `paper` does not have"""
    source: str = ""
    """publication it comes from"""
    by_gradient: bool = True
    """whether a network with a head adapts by gradient steps; otherwise features are compared. Of your own: whether it
    is a `GradientLearner` or takes `engine`, unless it says otherwise"""

    takes: tuple[str, ...] = ()
    """settings that not all methods of its kind take: `adapt` where it can be chosen what moves, `lora_rank` where
    that may be adapters, `head` where the head is treated apart, and those of an inner loop where it does not adapt by
    gradient otherwise. Of your own: those that its signature has"""

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings of the inner loop that the method takes; it has no use for others."""
        return (*(INNER_LOOP_SETTINGS if self.by_gradient else ()), *self.takes)


def _entry(
    name: str, target: str, summary: str, source: str, engines: tuple[str, ...] = ("func",), **facts: Any
) -> LearnerEntry:
    return LearnerEntry(name, f"arelu_meta.learners.{target}", summary, engines=engines, source=source, **facts)


FINN, TIAN, WANG = "Finn 2017, arXiv 1703.03400", "Tian 2020, arXiv 2003.11539", "Wang 2019, arXiv 1911.04623"
FROZEN: dict[str, Any] = {"by_gradient": False, "needs_training": False}
_REGISTRY = Registry("method", LearnerEntry, group="arelu_meta.learners")
_REGISTRY.add(
    _entry("maml", "maml:maml", "second-order MAML", FINN, ALL_ENGINES, takes=OTHER_SETTINGS),
    _entry("fomaml", "maml:fomaml", "MAML with constant inner gradients", FINN, ALL_ENGINES, takes=OTHER_SETTINGS),
    _entry("anil", "maml:anil", "only the head adapts", "Raghu 2020, arXiv 1909.09157", ALL_ENGINES, takes=("head",)),
    _entry("boil", "maml:boil", "only the body adapts", "Oh 2021, arXiv 2008.08882", ALL_ENGINES, takes=("head",)),
    _entry(
        "meta_sgd",
        "learned_rates:MetaSgd",
        "one learned rate per weight",
        "Li 2017, arXiv 1707.09835",
        takes=OTHER_SETTINGS,
    ),
    _entry(
        "mamlpp",
        "learned_rates:MamlPlusPlus",
        "rates per layer and step, multi-step loss",
        "Antoniou 2019, arXiv 1810.09502",
        takes=OTHER_SETTINGS,
    ),
    _entry("reptile", "reptile:Reptile", "move towards adapted weights", "Nichol 2018, arXiv 1803.02999"),
    _entry(
        "joint",
        "joint:Joint",
        "control: trained on all episodes without adapting",
        "Finn 2017, arXiv 1703.03400",
        ALL_ENGINES,
    ),
    _entry(
        "protonet",
        "prototypes:ProtoNet",
        "nearest class mean of learned features",
        "Snell 2017, arXiv 1703.05175",
        by_gradient=False,
    ),
    _entry(
        "pmf",
        "pmf:Pmf",
        "trained as protonet, fine-tuned in every test episode",
        "Hu 2022, arXiv 2204.07305",
        by_gradient=False,
        needs_validation=True,
        takes=("test_steps",),
    ),
    _entry("simpleshot", "frozen_features:SimpleShot", "class mean, centred, of length one", WANG, **FROZEN),
    _entry("linear", "frozen_features:LinearProbe", "logistic regression on features", TIAN, **FROZEN),
    _entry("knn", "frozen_features:NearestNeighbours", "nearest neighbours by features", "", **FROZEN),
    _entry("features", "prototypes:ProtoNet", "floor: class mean of random features", "", **FROZEN),
    _entry("centroid", "prototypes:PixelCentroid", "floor: class mean of pixels", "", **FROZEN),
)


def names() -> list[str]:
    """Names of all methods."""
    return _REGISTRY.names()


def entries() -> list[LearnerEntry]:
    """All methods with engines and sources."""
    return list(_REGISTRY)


def entry(method: Method) -> LearnerEntry:
    """One method's entry.

    Args:
        method: name of a method, such as `maml`, `package.module:Class`, or a class or function, which is imported

    >>> entry("maml").engines
    ('func', 'higher', 'learn2learn')
    """
    found = _REGISTRY.find(method)
    return found if found.engines else _with_facts(found)


def _with_facts(found: LearnerEntry) -> LearnerEntry:
    """Take the facts of a method that is not ours from its attributes."""
    from arelu_meta.learners.gradient_learner import GradientLearner

    target = found.load()
    taken, open_ended = parameters_of(target)
    # A class with **options hands them on to the class below, which may be one of prototypes.
    guessed = issubclass(target, GradientLearner) if isinstance(target, type) else open_ended
    supported = tuple(getattr(target, "engines", ("func",)))
    for engine in supported:
        if engine not in engines.names():
            raise unknown(f"engine of method {found.name!r}:", engine, engines.names())
    by_gradient = bool(getattr(target, "by_gradient", "engine" in taken or guessed))
    optional = (*(() if by_gradient else INNER_LOOP_SETTINGS), *OTHER_SETTINGS)
    return replace(
        found,
        engines=supported,
        by_gradient=by_gradient,
        takes=tuple(getattr(target, "takes", (name for name in optional if name in taken))),
        needs_training=bool(getattr(target, "needs_training", True)),
        needs_validation=bool(getattr(target, "needs_validation", False)),
    )


def register(
    name: str, *, summary: str = "", source: str = ""
) -> Callable[["Callable[..., Learner]"], "Callable[..., Learner]"]:
    """Register a method of your own under a name, as a decorator of its class or of a function that gives a `Learner`.

    It is called as `build` says. What has to be known of it are attributes of the class or function: `by_gradient`
    (whether it adapts by gradient, and then takes `engine` and the settings of the inner loop; unless given, whether
    it is a `GradientLearner` or takes `engine`), `takes` (which of `adapt`, `head`, `lora_rank` and, where it does not
    adapt by gradient, the settings of the inner loop are its own; unless given, those that it takes), `engines` (those
    it runs on, `("func",)` unless given), `needs_training` (True unless given), `needs_validation` (False unless
    given).

    Args:
        name: the name that `build`, task files and flags take
        summary: what it does, in one line
        source: the publication it comes from

    Returns:
        A decorator that gives back what it is given.

    Raises:
        InputError: the name is registered already, or it names an engine that does not exist.

    >>> from arelu_meta.learners.prototypes import ProtoNet
    >>> @register("scaled", summary="prototypes with distances of half the size")
    ... class Scaled(ProtoNet):
    ...     def query_logits(self, episodes):
    ...         return super().query_logits(episodes) / 2
    >>> entry("scaled").by_gradient, entry("scaled").engines
    (False, ('func',))
    >>> _REGISTRY.remove("scaled")
    """

    def add(target: "Callable[..., Learner]") -> "Callable[..., Learner]":
        _REGISTRY.add(_with_facts(LearnerEntry(name, target, summary, source=source)))
        return target

    return add


def check_engine(method: Method, engine: str) -> None:
    """Refuse a method/engine pair that does not exist.

    Args:
        method: as in `build`
        engine: name of an engine, such as `func`

    Raises:
        InputError: an unknown name, or a method that does not run on the engine.

    >>> check_engine("maml", "higher")
    """
    chosen = entry(method)
    if engine not in engines.names():
        raise unknown("engine", engine, engines.names())
    if engine not in chosen.engines:
        remedy = " or ".join(f"`engine={name!r}`" for name in chosen.engines)
        raise InputError(f"method {chosen.name!r} does not run on engine {engine!r}; use {remedy}")


def build(
    method: Method, network: "nn.Module", *, engine: str = "func", episode_clip: float | None = None, **options: Any
) -> "Learner":
    """Make a learner around a network.

    Args:
        method: one of `names()`, `package.module:Class`, or a class or function that gives a `Learner`.
        network: any module that maps images (N, C, H, W) to logits (N, ways); methods without an inner loop take its
            features, found as `arelu_meta.pretrained.feature_network` does.
        engine: what computes the inner loop of methods that adapt by gradient: "func", "higher" or "learn2learn".
        episode_clip: bound on the Euclidean norm of each episode's meta-gradient, before the batch is averaged; None:
            no bound. For methods that adapt by gradient; with `reptile`, on how far an episode moves the parameters.
        options: `chunk`, and for methods that adapt by gradient `inner_lr`, `inner_steps`, `test_steps`, `clip_norm`,
            `inner_optimizer`, `loss` (also "mse"), all but `reptile` `adapt`, `head` and `lora_rank`, as in
            `learners.maml.maml`.

    Returns:
        A learner: `meta_step` fills gradients from episodes, `adapt` answers queries of one support set.

    Raises:
        InputError: an unknown name or option, a pair of method and engine that does not exist, no `Learner` is made.

    >>> from torch import nn
    >>> learner = build("anil", nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), inner_lr=0.1, inner_steps=5)
    >>> learner.rule.moving  # names of parameters, once the first episode has shown which layer is the head
    'head'
    """
    from arelu_meta.learners.inner_loop import loss_by_name
    from arelu_meta.learners.learner import Learner

    check_engine(method, engine)
    chosen = entry(method)
    if chosen.by_gradient:
        options["engine"] = engines.build(engine)
    if isinstance(loss := options.get("loss"), str):
        options["loss"] = loss_by_name(loss)
    target = chosen.load()
    given = [name for name in ("chunk", "engine") if name in options]
    check_accepts(f"method {chosen.name!r}", target, options.keys() - set(given), given=given)
    try:
        learner = target(network, **options)
    except TypeError as error:
        raise InputError(f"method {chosen.name!r} cannot be made: {first_line(error)}") from error
    if not isinstance(learner, Learner):
        kind = type(learner).__name__
        raise InputError(f"method {chosen.name!r} gives a {kind}, not an arelu_meta.learners.learner.Learner")
    if episode_clip is not None:
        _check_bound(episode_clip, chosen.name, learner)
        learner.episode_clip = episode_clip
    return learner


def _check_bound(bound: float, name: str, learner: "Learner") -> None:
    """Refuse a bound on episodes' gradients that is none, or that the method cannot heed."""
    if not bound > 0:
        raise InputError(f"episode_clip = {bound}; a bound on a norm is above 0, and None is no bound")
    if not learner.clips_episodes:
        raise InputError(
            f"method {name!r} does not bound the gradients of single episodes; leave `episode_clip` out, "
            f"or bound that of the batch by `outer_clip`"
        )
