"""Specs: what a run is, frozen, strict and hashed. Nothing here imports torch.

A task file's sections are the sections here; a command's flags are the fields here. The hash of a spec is the run's
identity.
"""

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from arelu_meta import activations, backbones, data, learners
from arelu_meta.errors import InputError, unknown

Protocol = Literal["sound", "paper"]
MOST_THREADS = 1024  # libraries fail in ways of their own when asked for more threads than a process may have
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Option = bool | int | float | str
NONE_WORD = BeforeValidator(lambda value: None if value == "none" else value)
OptionalCount = Annotated[Count | None, NONE_WORD]
OptionalRate = Annotated[Rate | None, NONE_WORD]


def _registered(kind: str, names: Callable[[], list[str]]) -> AfterValidator:
    """Accept a registered name, or a place outside the package (`package.module:name`, a path)."""

    def check(name: str) -> str:
        outside = set(name) & set(":/\\.") or (kind == "dataset" and os.path.isdir(name))
        if name not in names() and not outside:
            raise unknown(kind, name, names())
        return name

    return AfterValidator(check)


ActivationName = Annotated[str, _registered("activation", activations.names)]
BackboneName = Annotated[str, _registered("backbone", partial(backbones.names, "classification"))]
DatasetName = Annotated[str, _registered("dataset", data.names)]
MethodName = Annotated[str, _registered("method", learners.names)]
EngineName = Annotated[str, _registered("engine", learners.engines.names)]


class Section(BaseModel):
    """A group of settings that refuses unknown keys and cannot be changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DataSection(Section):
    """Which images, and how they are divided."""

    dataset: DatasetName
    """image set: a name, or a folder, an .npz or package.module:function of your own"""
    dataset_options: dict[str, Option] = {}
    """options of the set's reader, as key=value"""
    split: Literal["by_image", "by_class", "by_group", "published", "omniglot_standard", "auto"] = "by_image"
    """what is held out: images, whole classes, groups, or as the publisher divides; auto: published, else by_image"""
    validation: Share = 0.2
    """share of each class's images (or of the groups) that selects the model"""
    test: Share = 0.2
    """share of each class's images (or of the groups) that is tested on"""
    validation_classes: Count = 1
    """split by_class: classes that select the model"""
    test_classes: Count = 1
    """split by_class: classes that are tested on"""
    limit_train: OptionalCount = None
    """training images kept, drawn class by class; none: all"""
    limit_test: Annotated[int | None, Field(ge=2), NONE_WORD] = None
    """images kept to validate and as many to test, drawn class by class; none: all"""


class EpisodeSection(Section):
    """The size of an episode."""

    ways: Annotated[int, Field(ge=2)] = 5
    """classes in an episode"""
    train_ways: Annotated[int | None, Field(ge=2), NONE_WORD] = None
    """classes in a training episode, when they are not as many; for methods without a head of fixed size"""
    shots: Count = 1
    """support images per class"""
    queries: Count = 5
    """query images per class in training episodes"""
    test_queries: Count = 15
    """query images per class in validation and test episodes"""


class NetworkSection(Section):
    """The network and its activation."""

    backbone: BackboneName = "mnist_conv"
    """network, by name"""
    backbone_options: dict[str, Option] = {}
    """options of the network, as key=value"""
    norm: Literal["batch", "batch_support", "running", "group", "none"] | None = None
    """normalisation of a network that has a choice: batch (transductive), batch_support, running, group, none"""
    activation: ActivationName = "arelu"
    """activation, by name or package.module:Class"""
    activation_options: dict[str, Option] = {}
    """options of the activation, as key=value"""


class MetaTrainingSection(Section):
    """How the learner is trained over episodes."""

    method: MethodName = "maml"
    """meta-learning method, by name"""
    engine: EngineName = "func"
    """what computes the inner loop: func, higher, learn2learn"""
    iterations: Count = 100
    """outer steps"""
    meta_batch: Count = 32
    """episodes per outer step"""
    inner_lr: Rate = 0.005
    """learning rate of the adaptation inside an episode"""
    inner_steps: Count = 5
    """adaptation steps inside a training episode"""
    test_steps: OptionalCount = None
    """adaptation steps in validation and test, when they are not as many"""
    inner_optimizer: Literal["sgd", "adam"] = "sgd"
    """optimizer of the inner steps; adam runs on engine higher"""
    clip_norm: OptionalRate = None
    """bound on the norm of the inner gradients"""
    outer_lr: Rate = 0.005
    """learning rate of the outer optimizer (Adam; plain SGD for reptile)"""
    halve_lr_every: OptionalCount = None
    """outer steps after which the outer learning rate is halved, again and again"""

    @model_validator(mode="after")
    def _pair_exists(self) -> "MetaTrainingSection":
        learners.check_engine(self.method, self.engine)
        if self.inner_optimizer == "adam" and self.engine != "higher":
            raise InputError(
                f"inner optimizer 'adam' runs on engine 'higher', not {self.engine!r}; use --engine higher"
            )
        return self


class EvaluationSection(Section):
    """How the result is measured."""

    protocol: Protocol = "sound"
    """sound: held-out data, selected on validation, tested once; paper: as published, best training batch"""
    test_episodes: Annotated[int, Field(ge=2)] = 600
    """fixed test episodes"""
    validation_episodes: Annotated[int, Field(ge=2)] = 100
    """fixed validation episodes"""
    validate_every: Count = 10
    """outer steps between validations"""
    task_pool: Count = 1000
    """paper protocol only: distinct training episodes, revisited"""


class Spec(Section):
    """What every kind of run has: where it comes from, and its seed."""

    task: str
    version: Count = 1
    summary: str = ""
    seed: Annotated[int, Field(ge=0)] = 0
    """seed of every random stream"""

    @property
    def identity(self) -> str:
        """SHA-256 of all settings: the same identity is the same run.

        Images, weights and code of one's own are named here, not read: when their content changes, so must their name.
        """
        content = self.model_dump(mode="json", exclude={"summary"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def flat(self) -> dict[str, Any]:
        """All settings in one level, under the names of their flags."""
        values: dict[str, Any] = {}
        for name, value in self:
            values.update(dict(value) if isinstance(value, Section) else {name: value})
        return values


class FewShotSpec(Spec):
    """A meta-learning run: episodes of a data set, a network, a method."""

    kind: Literal["few_shot"] = "few_shot"
    data: DataSection
    episode: EpisodeSection = EpisodeSection()
    network: NetworkSection = NetworkSection()
    training: MetaTrainingSection = MetaTrainingSection()
    evaluation: EvaluationSection = EvaluationSection()

    @model_validator(mode="after")
    def _method_can(self) -> "FewShotSpec":
        method, train_ways = self.training.method, self.episode.train_ways
        if learners.entry(method).by_gradient:
            if train_ways is not None and train_ways > self.episode.ways:
                raise InputError(
                    f"train_ways = {train_ways}, but the head of method {method!r} has ways = {self.episode.ways} "
                    f"outputs; use --method protonet, or leave --train-ways out"
                )
            if self.network.norm == "running":
                raise InputError(
                    f"norm 'running' does not adapt, and method {method!r} adapts by gradient; "
                    f"use --norm batch_support, batch (transductive) or group"
                )
        return self

    @property
    def train_queries(self) -> int:
        """Query images per class in training episodes; the published procedure takes as many as shots."""
        return self.episode.shots if self.evaluation.protocol == "paper" else self.episode.queries


class Execution(Section):
    """How a run is carried out; no part of its identity."""

    device: str = "auto"
    """auto (a GPU when there is one), cpu, cuda, cuda:1, mps, ..."""
    threads: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    """CPU threads of torch; 0 leaves the choice to torch, which takes all cores"""
    resume: bool = False
    """go on from the last checkpoint of this very run, if there is one and the run has not finished"""
    experiment: str = "arelu_meta"
    """MLflow experiment that takes the run"""
    data_root: str = ""
    """folder of the published data sets"""
    tags: dict[str, str] = {}
    """more tags of the MLflow run, as key=value"""

    @classmethod
    def of(cls, execution: "Execution") -> Self:
        """Take over what every run has, with the defaults of this kind for the rest."""
        if isinstance(execution, cls):
            return execution
        return cls(**{name: getattr(execution, name) for name in Execution.model_fields})
