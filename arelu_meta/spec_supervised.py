"""Specs of supervised runs: classification, transfer, segmentation. Nothing here imports torch."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from arelu_meta.errors import InputError
from arelu_meta.spec import (
    ActivationName,
    Count,
    DataSection,
    DatasetName,
    NetworkSection,
    Option,
    OptionalCount,
    OptionalRate,
    Protocol,
    Rate,
    Section,
    Share,
    Spec,
)

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class FitSection(Section):
    """How images are made to fit the network."""

    channels: Annotated[int, Field(ge=0)] = 0
    """colour channels the images are turned into; 0: as they are"""
    image_size: Annotated[int, Field(ge=0)] = 0
    """side in pixels the images are brought to; 0: as they are"""
    resize: Literal["crop", "scale"] = "scale"
    """how: cut the centre out, or resample"""
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
            raise InputError("schedule 'step' needs milestones; give --milestones, such as 50 75")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise InputError("Nesterov momentum is for optimizer 'sgd' with momentum above 0")
        return self


class MeasureSection(Section):
    """How the result is measured."""

    protocol: Protocol = "sound"
    """sound: selected on validation, tested once; paper: as published, best epoch on the test images"""

    @property
    def final(self) -> str:
        """What the metrics of the result are named after: no figure of one protocol passes for the other's."""
        return "test" if self.protocol == "sound" else "paper/best_epoch_test"


class SelectionSection(MeasureSection):
    """How the result is measured, and which epoch it is measured after."""

    select: Literal["best", "last"] = "best"
    """best: the epoch the protocol chooses; last: none is chosen, and the validation images are trained on too"""

    @model_validator(mode="after")
    def _consistent(self) -> "SelectionSection":
        if self.select == "last" and self.protocol == "paper":
            raise InputError("protocol 'paper' chooses the best epoch; use --protocol sound with --select last")
        return self


def _check_patience(training: OptimizationSection, evaluation: SelectionSection) -> None:
    if evaluation.select == "last" and training.patience is not None:
        raise InputError("patience needs a validation to watch, and --select last has none; drop one of them")


class ClassifySpec(Spec):
    """Train a classifier and test it."""

    kind: Literal["classify"] = "classify"
    data: DataSection
    fit: FitSection = FitSection()
    network: NetworkSection = NetworkSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: SelectionSection = SelectionSection()

    @model_validator(mode="after")
    def _consistent(self) -> "ClassifySpec":
        _check_patience(self.training, self.evaluation)
        return self


class DomainsSection(Section):
    """Two image sets with the same classes: where the network learns first, and where it is to go."""

    source: DatasetName
    """image set to pre-train on"""
    target: DatasetName
    """image set to fine-tune on"""
    validation: Share = 0.1
    """share of the training images left aside: epochs are fixed, so that nothing is selected on them"""


class PretrainingSection(Section):
    """How the source is learned."""

    pretrain_epochs: Count = 20
    """passes over the source"""
    pretrain_lr: Rate = 0.01
    """learning rate on the source (SGD with momentum)"""


class TransferSpec(Spec):
    """Pre-train on a source, fine-tune on a target, beside no pre-training and no fine-tuning."""

    kind: Literal["transfer"] = "transfer"
    domains: DomainsSection
    fit: FitSection = FitSection()
    network: NetworkSection = NetworkSection()
    pretraining: PretrainingSection = PretrainingSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: MeasureSection = MeasureSection()
    report_epochs: tuple[int, ...] = (5, 10, 20)
    """epochs of fine-tuning after which the target is tested"""

    @model_validator(mode="after")
    def _reached(self) -> "TransferSpec":
        if not self.report_epochs or max(self.report_epochs) > self.training.epochs or min(self.report_epochs) < 1:
            raise InputError(
                f"report_epochs {self.report_epochs} must lie between 1 and epochs = {self.training.epochs}"
            )
        if self.training.patience is not None:
            raise InputError("patience ends a training early, and a transfer has fixed epochs; leave --patience out")
        return self


class SegmentNetworkSection(Section):
    """The network and its activation."""

    filters: Count = 32
    """feature maps of the U-Net's first level"""
    activation: ActivationName = "arelu"
    """activation, by name or package.module:Class"""
    activation_options: dict[str, Option] = Field(default_factory=dict)
    """options of the activation, as key=value"""


class SegmentSpec(Spec):
    """Train a U-Net on image and mask pairs and test it patient by patient."""

    kind: Literal["segment"] = "segment"
    data: DataSection
    fit: FitSection = FitSection()
    network: SegmentNetworkSection = SegmentNetworkSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: SelectionSection = SelectionSection()

    @model_validator(mode="after")
    def _consistent(self) -> "SegmentSpec":
        _check_patience(self.training, self.evaluation)
        if self.training.augment not in ("none", "affine"):
            raise InputError(
                f"augment {self.training.augment!r} moves no masks; segmentation takes --augment affine or none"
            )
        if self.training.label_smoothing:
            raise InputError("label_smoothing is for classes; the Dice loss has none, so leave it at 0")
        if self.training.class_weights:
            raise InputError("class_weights is for classes; the Dice loss weighs the marked pixels already, so drop it")
        return self
