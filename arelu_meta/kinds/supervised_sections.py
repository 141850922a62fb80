"""Specs of supervised runs: classification, transfer, segmentation. Nothing here imports torch."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import (
    Count,
    OptionalCount,
    OptionalRate,
    Protocol,
    Rate,
    Section,
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

    @property
    def watched(self) -> set[str]:
        """The part of the images that is measured after each epoch; none where no epoch is chosen."""
        return {"validation" if self.protocol == "sound" else "test"}


class SelectionSection(MeasureSection):
    """How the result is measured, and which epoch it is measured after."""

    select: Literal["best", "last"] = "best"
    """best: the epoch the protocol chooses; last: none is chosen, and the validation images are trained on too"""

    @property
    def watched(self) -> set[str]:
        """The part of the images that is measured after each epoch; none where no epoch is chosen."""
        return set() if self.select == "last" else super().watched

    @model_validator(mode="after")
    def _consistent(self) -> "SelectionSection":
        if self.select == "last" and self.protocol == "paper":
            raise InputError("protocol 'paper' chooses the best epoch; use --protocol sound with --select last")
        return self


def check_patience(training: OptimizationSection, evaluation: SelectionSection) -> None:
    """Refuse patience where nothing is validated."""
    if evaluation.select == "last" and training.patience is not None:
        raise InputError("patience needs a validation to watch, and --select last has none; drop one of them")


def classifier_metrics(evaluation: MeasureSection) -> set[str]:
    """Name the metrics of a classifier's run."""
    tested = {f"{evaluation.final}/accuracy", f"{evaluation.final}/accuracy_top5"}
    watched = {f"{part}/accuracy" for part in evaluation.watched}
    chosen = {"validation/selected_accuracy"} if "validation/accuracy" in watched else set()
    return {"train/loss", "train/accuracy"} | watched | chosen | tested
