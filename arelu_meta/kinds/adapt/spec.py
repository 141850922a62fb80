"""The spec of an adaptation: few labelled images in, a classifier out. Nothing here imports torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from arelu_meta.errors import InputError
from arelu_meta.kinds.finetune.spec import PretrainedInputSection
from arelu_meta.kinds.sections import (
    NONE_WORD,
    ActivationName,
    Count,
    DatasetName,
    Option,
    OptionalCount,
    Section,
    Spec,
    SplitSeed,
)
from arelu_meta.pretrained.installed import DEFAULT

Method = Literal["prototypes", "knn", "linear", "norm", "activation", "lora", "full", "all"]
FROZEN: tuple[Method, ...] = ("prototypes", "knn", "linear")
TUNED: tuple[Method, ...] = ("norm", "activation", "lora", "full")


class SupportSection(Section):
    """Which images are learned from, and which are held out."""

    dataset: DatasetName
    """image set: a folder of class folders, an .npz, a name, or package.module:function of your own"""
    dataset_options: dict[str, Option] = Field(default_factory=dict)
    """options of the set's reader, as key=value"""
    ways: Annotated[int | None, Field(ge=2), NONE_WORD] = None
    """classes that are kept, drawn once by `split_seed`; none: all"""
    shots: OptionalCount = None
    """images of each class that are learned from, the others held out; none: all but those the set marks as test"""
    test_per_class: OptionalCount = None
    """held-out images kept of each class; none: all"""
    draws: Count = 1
    """how often `shots` images of each class are drawn anew; all methods see the same draws"""
    split_seed: SplitSeed = 0
    """draws what is learned from and what is held out"""

    @model_validator(mode="after")
    def _consistent(self) -> "SupportSection":
        if self.draws > 1 and self.shots is None:
            raise InputError(
                f"`draws={self.draws}` draws images anew, and without `shots` all are learned from; give `shots`"
            )
        return self


class FeatureNetworkSection(Section):
    """The pretrained network whose features are used."""

    model: str = DEFAULT
    """network: a name of torchvision, of timm (timm/NAME), installed/NAME, one of ours, or package.module:function"""
    model_options: dict[str, Option] = Field(default_factory=dict)
    """options of the network's builder, as key=value"""
    weights: str = "DEFAULT"
    """a .safetensors or .pth file, a published weights name (DEFAULT), an MLflow URI; none: untrained"""
    head: str = ""
    """path of the network's classifier, whose input is taken as features, where it cannot be found"""


class MethodSection(Section):
    """What is tried, and how it is chosen."""

    method: Annotated[tuple[Method, ...], Field(min_length=1)] = FROZEN
    """prototypes, knn, linear (on frozen features), norm, activation, lora, full (tuned networks); all"""
    folds: Annotated[int, Field(ge=2)] = 5
    """parts of the given images for cross-validation, by which method and strength are chosen"""
    activation: ActivationName = "arelu"
    """method activation: what replaces the network's activations, started where they were; it and the head are tuned"""
    epochs: Count = 10
    """methods that move the network: passes over the images"""

    @property
    def arms(self) -> tuple[str, ...]:
        """The methods, each once, in their own order."""
        return tuple(name for name in (*FROZEN, *TUNED) if name in self.method or "all" in self.method)


class SupportOnlySection(Section):
    """How the result is measured."""

    protocol: Literal["support_only"] = "support_only"
    """support_only: every choice is made inside the images that are learned from; held-out ones are looked at once"""


class AdaptSpec(Spec):
    """Fit a classifier to a few images of each class, on the features of a pretrained network.

    Args:
        task: the name of the task, which the run is called after.
        data: the images, and how many of each class are learned from.
        network: the pretrained network.
        input: what the images are brought to.
        methods: what is tried, and how it is chosen.
        evaluation: protocol.
        seed: seed of every random stream.

    Raises:
        InputError: a setting is unknown, out of range, or does not go with another.

    Example:
        >>> spec = AdaptSpec(task="mine", data={"dataset": "digits", "shots": 5}, methods={"method": ["linear"]})
        >>> spec.network.model, spec.methods.arms, sorted(spec.metrics())[:2]
        ('installed/efficientnet_lite0', ('linear',), ['test/accuracy', 'test/accuracy_linear'])
    """

    left_out_at_default: ClassVar[frozenset[str]] = frozenset({"data.ways"})

    kind: Literal["adapt"] = "adapt"
    data: SupportSection
    network: FeatureNetworkSection = FeatureNetworkSection()
    input: PretrainedInputSection = PretrainedInputSection()
    methods: MethodSection = MethodSection()
    evaluation: SupportOnlySection = SupportOnlySection()

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by.

        With `shots` images are held out, and tested on; without, it depends on the set: one with test images of its own
        is tested on these, another cross-validated.
        """
        finals = ("test",) if self.data.shots else ("test", "cross_validation")
        names = ("accuracy", *(f"accuracy_{arm}" for arm in self.methods.arms))
        return {"validation/selected_accuracy", *(f"{final}/{name}" for final in finals for name in names)}
