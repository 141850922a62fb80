"""The spec of a segmentation run. Nothing here imports torch."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import (
    ActivationName,
    Count,
    DataSection,
    InputSection,
    Option,
    Section,
    SegmentationBackboneName,
)
from arelu_meta.kinds.supervised_spec import OptimizationSection, SelectionSection, SupervisedSpec


class SegmentNetworkSection(Section):
    """The network and its activation."""

    backbone: SegmentationBackboneName = "unet"
    """network, by name or package.module:Class"""
    filters: Count = 32
    """feature maps of the network's first level"""
    activation: ActivationName = "arelu"
    """activation, by name or package.module:Class"""
    activation_options: dict[str, Option] = Field(default_factory=dict)
    """options of the activation, as key=value"""


class SegmentSpec(SupervisedSpec):
    """Train a segmentation network on image and mask pairs and test it patient by patient.

    Args:
        task: the name of the task, which the run is called after.
        data: the image set, with masks and patients, and how it is divided.
        fit: the shape that the images are brought to.
        network: backbone, its filters, activation.
        training: optimizer, epochs, augmentation.
        evaluation: protocol and choice of the epoch.
        seed: seed of every random stream.

    Raises:
        InputError: a setting is unknown, out of range, or does not go with another.

    Example:
        >>> spec = SegmentSpec(task="mine", data={"dataset": "phantom", "split": "by_group"})
        >>> sorted(spec.metrics())
        ['test/dice', 'train/loss', 'validation/dice', 'validation/selected_dice']
    """

    measure: ClassVar[str] = "dice"
    augments: ClassVar[tuple[str, ...]] = ("none", "affine")  # the others do not move masks
    left_out_at_default: ClassVar[frozenset[str]] = frozenset({"network.backbone"})

    kind: Literal["segment"] = "segment"
    data: DataSection
    fit: InputSection = InputSection()
    network: SegmentNetworkSection = SegmentNetworkSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: SelectionSection = SelectionSection()

    @model_validator(mode="after")
    def _loss_without_classes(self) -> "SegmentSpec":
        if self.training.label_smoothing:
            raise InputError("label_smoothing is for classes; the Dice loss has none, so leave it at 0")
        if self.training.class_weights:
            raise InputError("class_weights is for classes; the Dice loss weighs the marked pixels already, so drop it")
        return self
