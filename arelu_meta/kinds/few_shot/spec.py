"""The spec of a meta-learning run. Nothing here imports torch."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from arelu_meta import backbones, learners
from arelu_meta.errors import InputError, unknown
from arelu_meta.kinds.few_shot.measures import ACCURACY, MSE, EpisodeMeasure
from arelu_meta.kinds.few_shot.network_section import EpisodeNetworkSection
from arelu_meta.kinds.finetune.spec import OWN
from arelu_meta.kinds.sections import (
    NONE_WORD,
    Count,
    DataSection,
    ImageShapeSection,
    OptionalCount,
    OptionalRate,
    Protocol,
    Rate,
    Section,
    Spec,
    registered,
)
from arelu_meta.trust import is_target


def _check_parts(adapt: str) -> str:
    for part in adapt.split("+"):
        if part not in learners.PARTS:
            raise unknown("part of the network in `adapt`:", part, learners.PARTS)
    return adapt


CLASS_COUNTS = ("validation_classes", "test_classes")
MethodName = Annotated[str, registered("method", learners.names, outside=is_target)]
AdaptedParts = Annotated[str, AfterValidator(_check_parts)]
EngineName = Annotated[str, registered("engine", learners.engines.names, outside=lambda _name: False)]


class EpisodeSection(Section):
    """The size of an episode."""

    ways: Count = 5
    """classes in an episode; with loss mse 1, the function"""
    train_ways: Annotated[int | None, Field(ge=2), NONE_WORD] = None
    """classes in a training episode, when they are not as many; for methods without a head of fixed size"""
    shots: Count = 1
    """support images per class"""
    queries: Count = 5
    """query images per class in training episodes"""
    test_queries: Count = 15
    """query images per class in validation and test episodes"""


class EpisodeInputSection(ImageShapeSection):
    """How the images of episodes are made to fit the network; a pretrained one has a shape and pixels of its own."""

    normalise: Literal["standardise", "weights", "unit", "none"] = "standardise"
    """pixels: standardise (by training images), weights (as those had them), unit (in [0, 1]), none (as stored)"""


class MetaTrainingSection(Section):
    """How the learner is trained over episodes."""

    method: MethodName = "maml"
    """meta-learning method, by name or package.module:Class"""
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
    adapt: AdaptedParts = "all"
    """what moves inside an episode: all, head, body, norm (and biases), activation, lora, or several, as head+lora"""
    lora_rank: Count = learners.LORA_RANK
    """rank of the low-rank adapters of adapt lora"""
    head: str = ""
    """path of the head, for adapt head and body, anil and boil; empty: the last linear layer before the logits"""
    loss: Literal["cross_entropy", "mse"] = "cross_entropy"
    """of support and query: cross_entropy of classes, mse (mean squared error) of real targets"""
    outer_lr: Rate = 0.005
    """learning rate of the outer optimizer (Adam; plain SGD for reptile)"""
    halve_lr_every: OptionalCount = None
    """outer steps after which the outer learning rate is halved, again and again"""
    episode_clip: OptionalRate = None
    """bound on the norm of each episode's gradient, before the batch is averaged; for methods with an inner loop"""
    outer_clip: OptionalRate = None
    """bound on the norm of the batch gradient, before the outer optimizer steps"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """number format of the passes through the network; parameters, and inner and outer updates, stay float32"""

    @model_validator(mode="after")
    def _pair_exists(self) -> "MetaTrainingSection":
        learners.check_engine(self.method, self.engine)
        taken = learners.entry(self.method).takes
        if self.adapt != "all" and "adapt" not in taken:
            raise InputError(
                f"what method {self.method!r} moves is fixed; leave `adapt` out ({self.adapt!r}), or use method maml"
            )
        if self.lora_rank != learners.LORA_RANK and ("lora_rank" not in taken or "lora" not in self.adapt.split("+")):
            raise InputError(
                f"method {self.method!r} with adapt {self.adapt!r} has no adapters; leave `lora_rank` out "
                f"({self.lora_rank}), or use method maml with adapt lora"
            )
        by_head = {"head", "body"} & set(self.adapt.split("+")) or "adapt" not in taken
        if self.head and not ("head" in taken and by_head):
            raise InputError(
                f"method {self.method!r} with adapt {self.adapt!r} treats no layer apart; leave `head` out "
                f"({self.head!r})"
            )
        if self.inner_optimizer == "adam" and self.engine != "higher":
            raise InputError(
                f"inner optimizer 'adam' runs on engine 'higher', not {self.engine!r}; use `engine='higher'`"
            )
        return self


class EvaluationSection(Section):
    """How the result is measured."""

    protocol: Protocol = "sound"
    """sound: selected on validation, tested once; paper: as published, all training images, best training batch"""
    test_episodes: Annotated[int, Field(ge=2)] = 600
    """fixed test episodes"""
    validation_episodes: Annotated[int, Field(ge=2)] = 100
    """fixed validation episodes"""
    validate_every: Count = 10
    """outer steps between validations"""
    task_pool: Count = 1000
    """paper protocol only: distinct training episodes, revisited"""


class FewShotSpec(Spec):
    """A meta-learning run: episodes of a data set, a network, a method.

    Args:
        task: the name of the task, which the run is called after.
        data: the image set and how it is divided.
        fit: the shape that images are brought to, and how their pixels are normalised.
        episode: classes, support and query images of an episode.
        network: backbone and activation.
        training: method, engine, inner and outer loop.
        evaluation: protocol and episodes of validation and test.
        seed: seed of every random stream.

    Raises:
        InputError: a setting is unknown, out of range, or does not go with another.

    Example:
        >>> spec = FewShotSpec(task="mine", data={"dataset": "digits"}, episode={"ways": 3, "shots": 2})
        >>> spec.training.method, spec.network.activation, "test/accuracy" in spec.metrics()
        ('maml', 'arelu', True)
    """

    left_out_at_default: ClassVar[frozenset[str]] = frozenset(
        (
            "training.adapt",
            "network.weights",
            "training.head",
            "training.lora_rank",
            "training.loss",
            "training.episode_clip",
            "training.outer_clip",
            "training.precision",
            *(f"fit.{key}" for key in EpisodeInputSection.model_fields),
        )
    )

    kind: Literal["few_shot"] = "few_shot"
    data: DataSection
    fit: EpisodeInputSection = EpisodeInputSection()
    episode: EpisodeSection = EpisodeSection()
    network: EpisodeNetworkSection = EpisodeNetworkSection()
    training: MetaTrainingSection = MetaTrainingSection()
    evaluation: EvaluationSection = EvaluationSection()

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_pretrained(cls, values: Any) -> Any:
        """Let a network of others keep its activations, and the pixels of its weights, unless others are named."""
        network = values.get("network") if isinstance(values, dict) else None
        fit = values.get("fit", {}) if isinstance(values, dict) else None
        if not isinstance(network, dict) or not backbones.is_pretrained(str(network.get("backbone", ""))):
            return values
        network = {"activation": OWN, **network}
        return {**values, "network": network, "fit": {"normalise": "weights", **fit} if isinstance(fit, dict) else fit}

    @model_validator(mode="after")
    def _loss_fits(self) -> "FewShotSpec":
        ways, method = self.episode.ways, self.training.method
        if self.training.loss == "cross_entropy":
            if ways < 2:
                raise InputError(f"ways = {ways} must be at least 2: one class cannot be told from others")
        elif not learners.entry(method).by_gradient:
            raise InputError(f"method {method!r} compares features of classes; with `loss` mse use `method='maml'`")
        elif (ways, self.episode.train_ways) != (1, None):
            raise InputError(f"ways = {ways}, but with `loss` mse an episode is one function; set `ways` to 1")
        elif self.evaluation.protocol == "paper":
            raise InputError("protocol 'paper' is that of published accuracies; with `loss` mse use `protocol='sound'`")
        return self

    @model_validator(mode="after")
    def _method_can(self) -> "FewShotSpec":
        method, train_ways = self.training.method, self.episode.train_ways
        if learners.entry(method).needs_validation and self.evaluation.protocol == "paper":
            raise InputError(
                f"method {method!r} makes a choice on validation episodes, which protocol 'paper' does not have; "
                f"use `protocol='sound'`"
            )
        if self.fit.normalise == "weights" and not self.network.is_pretrained:
            raise InputError(
                f"normalise 'weights' is for networks of others, not for {self.network.backbone!r}; use standardise"
            )
        if learners.entry(method).by_gradient:
            if train_ways is not None and train_ways > self.episode.ways:
                raise InputError(
                    f"train_ways = {train_ways}, but the head of method {method!r} has ways = {self.episode.ways} "
                    f"outputs; use `method='protonet'`, or leave `train_ways` out"
                )
            if self.network.norm == "running":
                raise InputError(
                    f"norm 'running' does not adapt, and method {method!r} adapts by gradient; "
                    f"use `norm='batch_support'`, 'batch' (transductive) or 'group'"
                )
        return self

    @property
    def identity(self) -> str:
        """SHA-256 of all settings that the method takes: those of an inner loop that it does not have change nothing.

        They stand at their defaults there, so that a task file may set them for the methods that do.
        """
        fields = MetaTrainingSection.model_fields
        method = learners.entry(self.training.method)
        ignored = {*learners.INNER_LOOP_SETTINGS, *learners.OTHER_SETTINGS} - set(method.settings)
        ignored |= set() if method.by_gradient else {"episode_clip"}
        training = self.training.model_copy(update={name: fields[name].default for name in ignored})
        return super(FewShotSpec, self.model_copy(update={"training": training})).identity

    @property
    def measure(self) -> EpisodeMeasure:
        """What the run is judged by."""
        return MSE if self.training.loss == "mse" else ACCURACY

    @property
    def problem(self) -> str:
        """The episodes in words: `5-way 1-shot`."""
        shots = f"{self.episode.shots}-shot"
        return f"{shots} regression" if self.measure is MSE else f"{self.episode.ways}-way {shots}"

    @property
    def train_queries(self) -> int:
        """Query images per class in training episodes; the published procedure takes as many as shots."""
        return self.episode.shots if self.evaluation.protocol == "paper" else self.episode.queries

    def class_counts(self) -> DataSection:
        """The data section with as many classes to validate and to test as an episode has, where it leaves them at 1.

        One class makes no episode, so such a count can only be one that nobody named.
        """
        counts = {name: self.episode.ways for name in CLASS_COUNTS if getattr(self.data, name) == 1}
        return self.data.model_copy(update=counts) if self.data.split == "by_class" else self.data

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by."""
        from arelu_meta.analysis.speed import speed_names  # and pandas, which reading a spec does without

        name, steps = self.measure.name, self.training.test_steps or self.training.inner_steps
        tested = {f"test/{name}", f"test/{name}_by_inner_step"}
        if self.measure is MSE:
            tested |= {f"test/mse_step_{step}" for step in range(steps + 1)}
        elif learners.entry(self.training.method).by_gradient:
            tested |= speed_names("test/accuracy", "steps")
        if not learners.entry(self.training.method).needs_training:
            return tested
        extra = {f"validation/{name}"} if self.evaluation.protocol == "sound" else {"paper/best_batch_accuracy"}
        trained = {"train/loss", f"train/{name}", "train/gradient_norm"}
        trained |= {"train/collapsed"} if self.measure is ACCURACY else set()
        if learners.entry(self.training.method).by_gradient and self.training.episode_clip is not None:
            trained |= {"train/largest_episode_norm", "train/clipped_episodes"}
        return trained | tested | extra
