"""Specs and the sections that several kinds of run share: frozen, strict, hashed. Nothing here imports torch.

A task file's sections are the sections here; a command's flags are the fields here. The hash of a spec is the run's
identity.
"""

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from arelu_meta import activations, backbones, data
from arelu_meta.console.flags import CheckedModel
from arelu_meta.errors import InputError
from arelu_meta.registry import is_target, unknown_part

Protocol = Literal["sound", "paper"]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Option = bool | int | float | str
NONE_WORD = BeforeValidator(lambda value: None if value == "none" else value)
OptionalCount = Annotated[Count | None, NONE_WORD]
OptionalRate = Annotated[Rate | None, NONE_WORD]
SplitSeed = Annotated[int, Field(ge=0)]


def registered(kind: str, names: Callable[[], list[str]], *, outside: Callable[[str], bool]) -> AfterValidator:
    """Accept a registered name, or one of a place outside the package; what is there is not imported yet."""

    def check(name: str) -> str:
        if name not in names() and not outside(name):
            raise unknown_part(kind, name, names())
        return name

    return AfterValidator(check)


ActivationName = Annotated[str, registered("activation", activations.names, outside=is_target)]
BackboneName = Annotated[str, registered("backbone", partial(backbones.names, "classification"), outside=is_target)]
SegmentationBackboneName = Annotated[
    str, registered("backbone", partial(backbones.names, "segmentation"), outside=is_target)
]
DatasetName = Annotated[
    str, registered("dataset", data.names, outside=lambda name: bool(set(name) & set(":/\\.")) or os.path.isdir(name))
]


class Section(CheckedModel, BaseModel):
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
    split_seed: SplitSeed = 0
    """draws what is held out, and the validation and test episodes; the same for every run seed and every arm"""
    limit_train: OptionalCount = None
    """training images kept, drawn class by class; none: all"""
    limit_test: Annotated[int | None, Field(ge=2), NONE_WORD] = None
    """images kept to validate and as many to test, drawn class by class; none: all"""


class NetworkSection(Section):
    """The network and its activation."""

    backbone: BackboneName = "mnist_conv"
    """network, by name or package.module:Class"""
    backbone_options: dict[str, Option] = {}
    """options of the network, as key=value"""
    norm: Literal["batch", "batch_support", "running", "group", "none"] | None = None
    """normalisation of a network that has a choice: batch (transductive), batch_support, running, group, none"""
    activation: ActivationName = "arelu"
    """activation, by name or package.module:Class"""
    activation_options: dict[str, Option] = {}
    """options of the activation, as key=value"""
    init: backbones.Init = "default"
    """initial weights: default (the network's own), he, gain (matched to the activation), unit_variance (by images)"""


class ImageShapeSection(Section):
    """The shape that images are brought to before a network sees them."""

    channels: Annotated[int, Field(ge=0)] = 0
    """colour channels the images are turned into; 0: as they are"""
    image_size: Annotated[int, Field(ge=0)] = 0
    """side in pixels the images are brought to; 0: as they are"""
    resize: Literal["crop", "scale"] = "scale"
    """how: cut the centre out, or resample"""


class InputSection(ImageShapeSection):
    """How images are made to fit a network that is trained from scratch."""

    normalise: bool = True
    """subtract the mean of each channel and divide by its deviation"""


class OptimizationSection(Section):
    """How a network is trained on batches."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """optimizer"""
    lr: Rate = 0.01
    """learning rate"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """momentum of sgd"""
    nesterov: bool = False
    """Nesterov momentum of sgd"""
    weight_decay: NonNegative = 0.0
    """weight decay of the weights"""
    activation_lr_multiplier: NonNegative = 1.0
    """learning rate of activation parameters, as a multiple"""
    activation_weight_decay: NonNegative = 0.0
    """weight decay of activation parameters"""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """each layer's learning rate as a multiple of the next one's"""
    batch_size: Count = 128
    """images per step"""
    accumulate: Count = 1
    """batches per step"""
    epochs: Count = 20
    """passes over the training images"""
    schedule: Literal["constant", "step", "cosine"] = "constant"
    """learning rate over the epochs"""
    milestones: tuple[int, ...] = ()
    """step schedule: epochs after which the rate is multiplied by 0.1"""
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    """epochs over which the rate rises from zero"""
    freeze_epochs: Annotated[int, Field(ge=0)] = 0
    """epochs in which only the head is trained"""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """share of the target spread over all classes"""
    class_weights: bool = False
    """weigh classes by the inverse of their frequency"""
    clip_norm: OptionalRate = None
    """bound on the norm of all gradients together"""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """decay of a running mean of the weights that is tested instead; 0: none"""
    patience: OptionalCount = None
    """epochs without a better validation after which training stops"""
    augment: Literal["none", "shift", "crop_flip", "affine"] = "none"
    """augmentation of training images"""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """number format of the forward pass"""

    @model_validator(mode="after")
    def _consistent(self) -> "OptimizationSection":
        if self.schedule == "step" and not self.milestones:
            raise InputError("schedule 'step' needs `milestones`, such as 50 75")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise InputError("Nesterov momentum is for optimizer 'sgd' with momentum above 0")
        return self

    def trainer_options(self) -> dict[str, Any]:
        """Give the settings that `SupervisedTrainer` takes; the others are the batches', the loss's and the run's."""
        others = ("batch_size", "augment", "label_smoothing", "class_weights", "patience")
        return {name: value for name, value in self if name not in others}


class MeasureSection(Section):
    """How the result is measured."""

    protocol: Protocol = "sound"
    """sound: selected on validation, tested once; paper: as published, best epoch on the test images"""

    @property
    def final(self) -> str:
        """What the metrics of the result are named after: no figure of one protocol passes for the other's."""
        return "test" if self.protocol == "sound" else "paper/best_epoch_test"

    @property
    def monitored(self) -> str | None:
        """The images that are scored after each epoch to choose one; None where no epoch is chosen."""
        return "validation" if self.protocol == "sound" else "test"


class SelectionSection(MeasureSection):
    """How the result is measured, and which epoch it is measured after."""

    select: Literal["best", "last"] = "best"
    """best: the epoch the protocol chooses; last: none is chosen, and the validation images are trained on too"""

    @property
    def monitored(self) -> str | None:
        """The images that are scored after each epoch to choose one; None where no epoch is chosen."""
        return None if self.select == "last" else super().monitored

    @model_validator(mode="after")
    def _consistent(self) -> "SelectionSection":
        if self.select == "last" and self.protocol == "paper":
            raise InputError('protocol \'paper\' chooses the best epoch; `select="last"` needs `protocol="sound"`')
        return self


def check_training(
    training: OptimizationSection,
    evaluation: MeasureSection,
    *,
    augments: tuple[str, ...],
) -> None:
    """Refuse an augmentation that the kind of run does not have, and patience where no epoch is chosen."""
    if training.augment not in augments:
        raise InputError(f"augment {training.augment!r} is not for this kind of run; use {' or '.join(augments)}")
    if evaluation.monitored is None and training.patience is not None:
        raise InputError('`patience` needs a validation to watch, and `select="last"` has none; drop one of them')


LATER_SETTINGS = ("data.split_seed", "domains.split_seed", "network.init")  # of several kinds, as `left_out_at_default`


class Spec(Section):
    """What every kind of run has: where it comes from, and its seed."""

    left_out_at_default: ClassVar[frozenset[str]] = frozenset()
    """settings of a kind, as section.key, that came later: at their default they are no part of the identity"""

    task: str
    kind: str
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
        for name in (*LATER_SETTINGS, *self.left_out_at_default):
            section, _, key = name.partition(".")
            if key not in content.get(section, {}):
                continue
            if content[section][key] == type(getattr(self, section)).model_fields[key].get_default():
                del content[section][key]
                if not content[section]:  # a section that came later as a whole
                    del content[section]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def flat(self) -> dict[str, Any]:
        """All settings in one level, under the names of their flags."""
        values: dict[str, Any] = {}
        for name, value in self:
            values.update(dict(value) if isinstance(value, Section) else {name: value})
        return values

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Name the image sets of a run, with the options of their readers."""
        section: DataSection = getattr(self, "data")  # noqa: B009  # declared by the kinds, in their own order
        return {section.dataset: section.dataset_options}

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by."""
        raise NotImplementedError


class SupervisedSpec(Spec):
    """What kinds share that train a network on batches and test it; each declares the sections in its own order."""

    measure: ClassVar[str] = "accuracy"
    """what the run is judged by: the last part of its metrics' names"""
    augments: ClassVar[tuple[str, ...]] = ("none", "shift", "crop_flip")
    """augmentations that this kind of run has"""

    if TYPE_CHECKING:
        data: DataSection
        network: Any
        training: OptimizationSection
        evaluation: MeasureSection

    @model_validator(mode="after")
    def _training_is_possible(self) -> "SupervisedSpec":
        check_training(self.training, self.evaluation, augments=self.augments)
        return self

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by."""
        from arelu_meta.analysis.speed import speed_names  # and pandas, which reading a spec does without

        final, monitored = self.evaluation.final, self.evaluation.monitored
        names = {"train/loss", f"{final}/{self.measure}"}
        names |= {"train/accuracy", f"{final}/accuracy_top5"} if self.measure == "accuracy" else set()
        if monitored is not None:
            names |= {f"{monitored}/{self.measure}", *speed_names(f"{monitored}/{self.measure}", "epochs")}
        names |= {f"validation/selected_{self.measure}"} if monitored == "validation" else set()
        return names
