"""The spec of a segmentation run. Nothing here imports torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from arelu_meta.backbones import Init
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
    init: Init = "default"
    """initial weights: default (the network's own), he, gain (matched to the activation), unit_variance (by images)"""


class VolumeSection(Section):
    """What is done with the slices of a patient as one volume: prepared, drawn and judged, as Buda et al. 2019 do."""

    drop_ends: bool = False
    """leave out the first and the last slice of each volume"""
    crop_volumes: bool = False
    """cut each volume to what is brighter than a tenth of its maximum, and pad it to a square"""
    percentiles: tuple[Annotated[float, Field(ge=0, le=100)], ...] = ()
    """two percentiles of each volume's pixels that become black and white, such as 10 99; without: as they are"""
    standardise_volumes: bool = False
    """normalise by each volume's own mean and deviation, channel by channel, not by those of the training images"""
    draw_by_area: bool = False
    """draw slices to train on with replacement: a patient, then a slice by the area of its mask; else each once"""
    largest_component: bool = False
    """judge the largest connected part of each predicted volume alone"""

    @property
    def prepares(self) -> bool:
        """Whether the images are changed before they are divided."""
        return self.drop_ends or self.crop_volumes or bool(self.percentiles) or self.standardise_volumes

    @model_validator(mode="after")
    def _consistent(self) -> "VolumeSection":
        if self.percentiles and (len(self.percentiles) != 2 or self.percentiles[0] >= self.percentiles[1]):
            shown = " ".join(f"{share:g}" for share in self.percentiles)
            raise InputError(f"`percentiles` {shown} must be two, the lower one first, such as 10 99")
        return self


class SegmentSpec(SupervisedSpec):
    """Train a segmentation network on image and mask pairs and test it patient by patient.

    Args:
        task: the name of the task, which the run is called after.
        data: the image set, with masks and patients, and how it is divided.
        fit: the shape that the images are brought to.
        volumes: how the slices of a patient are prepared, drawn and judged together.
        network: backbone, its filters, activation.
        training: optimizer, epochs, augmentation.
        evaluation: protocol and choice of the epoch.
        seed: seed of every random stream.

    Raises:
        InputError: a setting is unknown, out of range, or does not go with another.

    Example:
        >>> spec = SegmentSpec(task="mine", data={"dataset": "phantom", "split": "by_group"})
        >>> sorted(spec.metrics())[:4]
        ['test/dice', 'train/loss', 'train/loss_by_step', 'validation/dice']
    """

    measure: ClassVar[str] = "dice"
    augments: ClassVar[tuple[str, ...]] = ("none", "affine", "standard")  # the others do not move masks
    left_out_at_default: ClassVar[frozenset[str]] = frozenset(
        ("network.backbone", *(f"volumes.{key}" for key in VolumeSection.model_fields))
    )

    kind: Literal["segment"] = "segment"
    data: DataSection
    fit: InputSection = InputSection()
    volumes: VolumeSection = VolumeSection()
    network: SegmentNetworkSection = SegmentNetworkSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: SelectionSection = SelectionSection()

    @model_validator(mode="after")
    def _segmentation_is_possible(self) -> "SegmentSpec":
        if self.training.label_smoothing:
            raise InputError("label_smoothing is for classes; the Dice loss has none, so leave it at 0")
        if self.training.class_weights:
            raise InputError("class_weights is for classes; the Dice loss weighs the marked pixels already, so drop it")
        for name in ("randaugment", "color_jitter", "random_erasing", "mixup", "cutmix"):
            if getattr(self.training, name):
                raise InputError(f"`{name}` is for classes and does not move masks; use `augment` standard or affine")
        if self.volumes.standardise_volumes and not self.fit.normalise:
            raise InputError("`standardise_volumes` is a way to normalise, and `normalise` is off; drop one of them")
        if self.volumes.prepares and self.fit.image_size and self.fit.resize == "crop":
            raise InputError('volumes are brought to `image_size` by resampling; use `resize="scale"`')
        return self
