"""The spec of a transfer run. Nothing here imports torch."""

from typing import Any, Literal

from pydantic import model_validator

from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import (
    Count,
    DatasetName,
    InputSection,
    NetworkSection,
    Rate,
    Section,
    Share,
    Spec,
    SplitSeed,
)
from arelu_meta.kinds.supervised_spec import MeasureSection, OptimizationSection, SupervisedSpec, check_training

STAGES = ("pretrain", "scratch", "finetune")


class DomainsSection(Section):
    """Two image sets with the same classes: where the network learns first, and where it is to go."""

    source: DatasetName
    """image set to pre-train on"""
    target: DatasetName
    """image set to fine-tune on"""
    validation: Share = 0.1
    """share of the training images held back for a validation loss, by which nothing is chosen; protocol paper: none"""
    split_seed: SplitSeed = 0
    """draws what is held back and, where a set has no published test images, what is tested on"""


class PretrainingSection(Section):
    """How the source is learned."""

    pretrain_epochs: Count = 20
    """passes over the source"""
    pretrain_lr: Rate = 0.01
    """learning rate on the source (SGD with momentum)"""


class TransferSpec(Spec):
    """Pre-train on a source, fine-tune on a target, beside no pre-training and no fine-tuning.

    Args:
        task: the name of the task, which the run is called after.
        domains: the two image sets, source and target.
        fit: the shape that the images are brought to.
        network: backbone, activation.
        pretraining: how the source is learned.
        training: how the target is.
        evaluation: protocol.
        report_epochs: epochs of fine-tuning after which the target is tested.
        seed: seed of every random stream.

    Raises:
        InputError: a setting is unknown, out of range, or does not go with another.

    >>> spec = TransferSpec(task="mine", domains={"source": "digits", "target": "street"})
    >>> spec.report_epochs, "test/finetune_20" in spec.metrics()
    ((5, 10, 20), True)
    """

    kind: Literal["transfer"] = "transfer"
    domains: DomainsSection
    fit: InputSection = InputSection()
    network: NetworkSection = NetworkSection()
    pretraining: PretrainingSection = PretrainingSection()
    training: OptimizationSection = OptimizationSection()
    evaluation: MeasureSection = MeasureSection()
    report_epochs: tuple[int, ...] = (5, 10, 20)
    """epochs of fine-tuning after which the target is tested"""

    @model_validator(mode="after")
    def _consistent(self) -> "TransferSpec":
        check_training(self.training, self.evaluation, augments=SupervisedSpec.augments)
        if not self.report_epochs or max(self.report_epochs) > self.training.epochs or min(self.report_epochs) < 1:
            raise InputError(
                f"report_epochs {self.report_epochs} must lie between 1 and epochs = {self.training.epochs}; "
                f"name others by `report_epochs`"
            )
        if self.training.patience is not None:
            raise InputError("patience ends a training early, and a transfer has fixed epochs; leave `patience` out")
        return self

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Name the image sets of a run, with the options of their readers."""
        return {self.domains.source: {}, self.domains.target: {}}

    def metrics(self) -> set[str]:
        """Name the metrics of a run that can be judged, drawn or chosen by."""
        from arelu_meta.analysis.speed import speed_names  # and pandas, which reading a spec does without

        names = ("loss", "loss_by_step", "test_accuracy", *(["validation_loss"] if self.evaluation.validates else []))
        stages = {f"{stage}/{name}" for stage in STAGES for name in names}
        stages |= speed_names("finetune/test_accuracy", "epochs")
        final = self.evaluation.final
        rows = {f"{final}/finetune_{epoch}" for epoch in self.report_epochs}
        return stages | rows | {f"{final}/no_pretrain", f"{final}/no_finetune"}
