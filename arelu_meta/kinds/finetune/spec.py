"""Spec of fine-tuning any network on any image set. Nothing here imports torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from arelu_meta import activations
from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import (
    DataSection,
    ImageShapeSection,
    Option,
    OptionalCount,
    Section,
    outside_activation,
    registered,
)
from arelu_meta.kinds.supervised_spec import MeasureSection, OptimizationSection, SupervisedSpec

OWN = "own"  # the activations that the network comes with
NO_WEIGHTS = "none"


class PretrainedSection(Section):
    """The network, the weights it starts from, its head and its activations."""

    model: str = "resnet18"
    """network: a name of torchvision, of timm (timm/NAME) or of ours, or package.module:function"""
    model_options: dict[str, Option] = Field(default_factory=dict)
    """options of the network's builder, as key=value"""
    weights: str = NO_WEIGHTS
    """start: a .safetensors or .pth file, a published weights name (DEFAULT), an MLflow URI; none: untrained"""
    head: str = ""
    """path of the layer that gives the logits, where it cannot be found"""
    activation: Annotated[
        str, registered("activation", lambda: [OWN, *activations.names()], outside=outside_activation)
    ] = OWN
    """activation that replaces the network's, call site by call site; own: as they are"""
    activation_options: dict[str, Option] = Field(default_factory=dict)
    """options of the activation, as key=value"""
    preserve: Literal["pretrained", "always", "never"] = "pretrained"
    """when new activations start where the old ones were, so that the network computes what it did"""
    keep_statistics: bool = False
    """leave the running statistics of batch norms as the weights have them: for few images or small batches"""

    @property
    def backbone(self) -> str:
        """What reports call the network."""
        return self.model

    @property
    def preserved(self) -> bool:
        """Whether new activations start where the old ones were."""
        return self.preserve == "always" or (self.preserve == "pretrained" and self.weights != NO_WEIGHTS)


class PretrainedInputSection(ImageShapeSection):
    """How the target's images are made what the weights were trained on."""

    channels: Annotated[int, Field(ge=0)] = 0
    """colour channels the images are turned into; 0: those of the network's first layer"""
    image_size: Annotated[int, Field(ge=0)] = 0
    """side in pixels the images are brought to; 0: the weights' own, or as they are where it is unknown"""
    normalise: Literal["weights", "imagenet", "target", "none"] = "weights"
    """mean and deviation to normalise by: those of the weights (of the target if unknown), imagenet, target, none"""
    mean: tuple[float, ...] = ()
    """mean of each channel in [0, 1], given instead"""
    std: tuple[float, ...] = ()
    """deviation of each channel, given instead"""

    @model_validator(mode="after")
    def _consistent(self) -> "PretrainedInputSection":
        if len(self.mean) != len(self.std):
            raise InputError(f"`mean` has {len(self.mean)} numbers and `std` {len(self.std)}; give as many of each")
        if any(deviation <= 0 for deviation in self.std):
            raise InputError(f"`std` is {' '.join(map(str, self.std))}; deviations must be above 0")
        return self


class FineTuneInputSection(PretrainedInputSection):
    """How the target's images are made what the weights were trained on, or were evaluated on."""

    crop_pct: Annotated[float, Field(ge=0, le=1)] = 1.0
    """share of the side that is cut out of the centre after scaling; 1: all of it, 0: as the weights publish"""

    @model_validator(mode="after")
    def _cuts_once(self) -> "FineTuneInputSection":
        if self.crop_pct != 1 and self.resize == "crop":
            raise InputError('`crop_pct` scales before it cuts; use `resize="scale"`, or leave `crop_pct` at 1')
        return self


class AmountSection(Section):
    """How many images are used: a network is fine-tuned because there are few."""

    train_per_class: OptionalCount = None
    """training images kept of each class, the same for every seed and arm; none: all"""
    test_per_class: OptionalCount = None
    """validation and test images kept of each class; none: all"""


class FineTuneSpec(SupervisedSpec):
    """Fine-tune anyone's network on a target set.

    Args:
        task: the name of the task, which the run is called after.
        data: the image set and how it is divided.
        amount: images of each class that are used.
        network: the network, the weights it starts from, its head, its activation.
        input: what the images are brought to.
        training: optimizer, epochs, augmentation.
        evaluation: protocol.
        seed: seed of every random stream.

    Raises:
        InputError: a setting is unknown, out of range, or does not go with another.

    Example:
        >>> spec = FineTuneSpec(task="mine", data={"dataset": "digits"}, network={"activation": "arelu"})
        >>> spec.network.weights, spec.input.normalise
        ('none', 'weights')
    """

    left_out_at_default: ClassVar[frozenset[str]] = frozenset({"input.crop_pct"})

    kind: Literal["finetune"] = "finetune"
    data: DataSection
    amount: AmountSection = AmountSection()
    network: PretrainedSection = PretrainedSection()
    input: FineTuneInputSection = FineTuneInputSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: MeasureSection = MeasureSection()
