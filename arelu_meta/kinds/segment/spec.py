"""The spec of a segmentation run. Nothing here imports torch."""

from typing import Literal

from pydantic import Field, model_validator

from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import (
    ActivationName,
    Count,
    DataSection,
    Option,
    Section,
    Spec,
)
from arelu_meta.kinds.supervised_sections import (
    FitSection,
    OptimizationSection,
    SelectionSection,
    check_patience,
)


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
        check_patience(self.training, self.evaluation)
        if self.training.augment not in ("none", "affine"):
            raise InputError(
                f"augment {self.training.augment!r} moves no masks; segmentation takes --augment affine or none"
            )
        if self.training.label_smoothing:
            raise InputError("label_smoothing is for classes; the Dice loss has none, so leave it at 0")
        if self.training.class_weights:
            raise InputError("class_weights is for classes; the Dice loss weighs the marked pixels already, so drop it")
        return self

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by."""
        return {"train/loss", f"{self.evaluation.final}/dice"} | {f"{part}/dice" for part in self.evaluation.watched}
