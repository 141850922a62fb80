"""What specs share whose runs train on batches: optimization, protocol, metrics. Nothing here imports torch."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import Count, NonNegative, OptionalCount, OptionalRate, Protocol, Rate, Section, Spec

if TYPE_CHECKING:
    from arelu_meta.kinds.sections import DataSection


LATER_AUGMENTATION = ("crop_scale", "randaugment", "color_jitter", "random_erasing", "mixup", "cutmix")


def _shown(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)


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
    augment: Literal["none", "shift", "crop_flip", "affine", "standard"] = "none"
    """augmentation of training images; standard: random resized crop, half of them mirrored"""
    crop_scale: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.08, 1.0)
    """augment standard: smallest and largest share of the area that is cut out"""
    randaugment: tuple[Annotated[int, Field(ge=0, le=30)], ...] = ()
    """RandAugment: operations for each image and their level of 0 to 30, such as 2 9; without: none"""
    color_jitter: tuple[NonNegative, ...] = ()
    """colour jitter: brightness, contrast, saturation and, if given, hue, such as 0.4 0.4 0.4; without: none"""
    random_erasing: Annotated[float, Field(ge=0, le=1)] = 0.0
    """share of the training images of which a rectangle is erased"""
    mixup: NonNegative = 0.0
    """mixup: parameter of the beta distribution, such as 0.2; 0: none"""
    cutmix: NonNegative = 0.0
    """CutMix: parameter of the beta distribution, such as 1; with mixup, each image draws which; 0: none"""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """number format of the forward pass"""

    @model_validator(mode="after")
    def _consistent(self) -> "OptimizationSection":
        if self.schedule == "step" and not self.milestones:
            raise InputError("schedule 'step' needs `milestones`, such as 50 75")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise InputError("Nesterov momentum is for optimizer 'sgd' with momentum above 0")
        if len(self.crop_scale) != 2 or self.crop_scale[0] > self.crop_scale[1]:
            raise InputError(f"`crop_scale` {_shown(self.crop_scale)} must be two, the lower one first, such as 0.5 1")
        if len(self.randaugment) not in (0, 2):
            raise InputError(f"`randaugment` {_shown(self.randaugment)} must be operations and level, such as 2 9")
        if len(self.color_jitter) not in (0, 3, 4) or self.color_jitter[3:] > (0.5,):
            raise InputError(
                f"`color_jitter` {_shown(self.color_jitter)} must be brightness, contrast, saturation and maybe a hue "
                "of at most 0.5, such as 0.4 0.4 0.4 0.1"
            )
        return self

    def trainer_options(self) -> dict[str, Any]:
        """Give the settings that `SupervisedTrainer` takes; the others are the batches', the loss's and the run's."""
        others = ("batch_size", "label_smoothing", "class_weights", "patience", "augment", *LATER_AUGMENTATION)
        return {name: value for name, value in self if name not in others}


class MeasureSection(Section):
    """How the result is measured."""

    protocol: Protocol = "sound"
    """sound: selected on validation, tested once; paper: all training images, best epoch on the test images"""

    @property
    def selects(self) -> bool:
        """Whether an epoch is chosen by its score."""
        return True

    @property
    def validates(self) -> bool:
        """Whether images are held back to choose by; where not, they are trained on too."""
        return self.monitored == "validation"

    @property
    def final(self) -> str:
        """What the metrics of the result are named after: no figure of one protocol passes for the other's."""
        return "paper/best_epoch_test" if self.protocol == "paper" and self.selects else "test"

    @property
    def monitored(self) -> str | None:
        """The images that are scored after each epoch; None where there are none."""
        if self.protocol == "paper":
            return "test"
        return "validation" if self.selects else None


class SelectionSection(MeasureSection):
    """How the result is measured, and which epoch it is measured after."""

    select: Literal["best", "last"] = "best"
    """best: the epoch the protocol chooses; last: none is chosen, and the validation images are trained on too"""

    @property
    def selects(self) -> bool:
        """Whether an epoch is chosen by its score."""
        return self.select == "best"


def check_training(
    training: OptimizationSection,
    evaluation: MeasureSection,
    *,
    augments: tuple[str, ...],
) -> None:
    """Refuse an augmentation that the kind of run does not have, and patience where no epoch is chosen."""
    if training.augment not in augments:
        raise InputError(f"augment {training.augment!r} is not for this kind of run; use {' or '.join(augments)}")
    if not evaluation.selects and training.patience is not None:
        raise InputError('`patience` needs a validation to watch, and `select="last"` has none; drop one of them')


class SupervisedSpec(Spec):
    """What kinds share that train a network on batches and test it; each declares the sections in its own order."""

    measure: ClassVar[str] = "accuracy"
    """what the run is judged by: the last part of its metrics' names"""
    augments: ClassVar[tuple[str, ...]] = ("none", "shift", "crop_flip", "standard")
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
        names = {"train/loss", "train/loss_by_step", f"{final}/{self.measure}"}
        if self.measure == "accuracy":
            names |= {"train/accuracy", f"{final}/accuracy_top5"}
        if monitored is not None:
            names |= {f"{monitored}/{self.measure}", f"{monitored}/loss"}
            names |= speed_names(f"{monitored}/{self.measure}", "epochs")
        if monitored == "validation":
            names.add(f"validation/selected_{self.measure}")
        return names
