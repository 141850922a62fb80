"""Spec of fine-tuning any network on any image set. Nothing here imports torch."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from arelu_meta import activations
from arelu_meta.errors import InputError, unknown
from arelu_meta.kinds.sections import DataSection, Option, OptionalCount, Section, Spec
from arelu_meta.kinds.supervised_sections import MeasureSection, OptimizationSection, classifier_metrics

OWN = "own"  # the activations that the network comes with
NO_WEIGHTS = "none"


def _own_or_registered(name: str) -> str:
    if name != OWN and name not in activations.names() and ":" not in name:
        raise unknown("activation", name, [OWN, *activations.names()])
    return name


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
    activation: Annotated[str, AfterValidator(_own_or_registered)] = OWN
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


class InputSection(Section):
    """How the target's images are made what the weights were trained on."""

    channels: Annotated[int, Field(ge=0)] = 0
    """colour channels the images are turned into; 0: those of the network's first layer"""
    image_size: Annotated[int, Field(ge=0)] = 0
    """side in pixels the images are brought to; 0: the weights' own, or as they are where it is unknown"""
    resize: Literal["crop", "scale"] = "scale"
    """how: cut the centre out, or resample"""
    normalise: Literal["weights", "imagenet", "target", "none"] = "weights"
    """whose mean and deviation: the weights' (the target's where unknown), ImageNet's, the target's, nobody's"""
    mean: tuple[float, ...] = ()
    """mean of each channel in [0, 1], given instead"""
    std: tuple[float, ...] = ()
    """deviation of each channel, given instead"""

    @model_validator(mode="after")
    def _pairs(self) -> "InputSection":
        if len(self.mean) != len(self.std):
            raise InputError(f"--mean has {len(self.mean)} numbers and --std {len(self.std)}; give as many of each")
        if any(deviation <= 0 for deviation in self.std):
            raise InputError(f"--std {' '.join(map(str, self.std))}: deviations must be above 0")
        return self


class AmountSection(Section):
    """How many images are used: a network is fine-tuned because there are few."""

    train_per_class: OptionalCount = None
    """training images kept of each class, the same for every seed and arm; none: all"""
    test_per_class: OptionalCount = None
    """validation and test images kept of each class; none: all"""


class FineTuneSpec(Spec):
    """Fine-tune a network on a target set."""

    kind: Literal["finetune"] = "finetune"
    data: DataSection
    amount: AmountSection = AmountSection()
    network: PretrainedSection = PretrainedSection()
    input: InputSection = InputSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: MeasureSection = MeasureSection()

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by."""
        return classifier_metrics(self.evaluation)
