"""Kinds of runs by name: what a task file's `kind` stands for, and everything a kind says of itself.

A new one is a folder here (`spec.py`, `run.py`, `result.py`) and an entry below. Listing them imports no torch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arelu_meta.registry import Entry, Registry, load_attribute

if TYPE_CHECKING:
    from arelu_meta.kinds.execution import Execution
    from arelu_meta.kinds.sections import Spec

Place = tuple[str, str]  # section and key of a setting; a setting outside the sections has the section ""
_TRAINING_LENGTHS = tuple(
    ("training", key) for key in ("epochs", "milestones", "warmup_epochs", "freeze_epochs", "patience")
)


@dataclass(frozen=True)
class Kind(Entry):
    """A kind of run. `target` is its run function: `run(spec, execution, bar)` gives a result with `report()`."""

    spec: str = ""
    """its spec class, as package.module:Class"""
    execution: str = "arelu_meta.kinds.execution:Execution"
    """its execution settings, as package.module:Class"""
    command: str = ""
    """the command that runs it, as in `python -m arelu_meta.COMMAND`"""
    task: str = ""
    """the task file that its command runs unless told another"""
    stages: int = 1
    """progress bars that a run shows, one after another"""
    step: str = "epoch"
    """what its metrics are logged over"""
    lengths: tuple[Place, ...] = _TRAINING_LENGTHS
    """settings that scale with a budget; the first is the length that the budget is measured by"""

    @property
    def spec_class(self) -> "type[Spec]":
        """Import the spec class."""
        return load_attribute(self.spec)

    @property
    def execution_class(self) -> "type[Execution]":
        """Import the class of the execution settings."""
        return load_attribute(self.execution)


_TRAINING = "arelu_meta.kinds.execution:TrainingExecution"
_REGISTRY = Registry[Kind]("kind")
_REGISTRY.add(
    Kind(
        "few_shot",
        "arelu_meta.kinds.few_shot.run:run_few_shot",
        "meta-train and meta-test on episodes",
        spec="arelu_meta.kinds.few_shot.spec:FewShotSpec",
        execution="arelu_meta.kinds.execution:EpisodeExecution",
        command="maml",
        task="digits",
        stages=2,
        step="iteration",
        lengths=(("training", "iterations"), ("training", "halve_lr_every")),
    ),
    Kind(
        "classify",
        "arelu_meta.kinds.classify.run:run_classify",
        "train and test a classifier",
        spec="arelu_meta.kinds.classify.spec:ClassifySpec",
        execution=_TRAINING,
        command="classify",
        task="digits_classify",
    ),
    Kind(
        "transfer",
        "arelu_meta.kinds.transfer.run:run_transfer",
        "pre-train on a source set, fine-tune on a target set",
        spec="arelu_meta.kinds.transfer.spec:TransferSpec",
        command="finetune",
        task="digits_to_street",
        stages=3,
        lengths=(*_TRAINING_LENGTHS, ("pretraining", "pretrain_epochs"), ("", "report_epochs")),
    ),
    Kind(
        "segment",
        "arelu_meta.kinds.segment.run:run_segment",
        "train and test a segmentation network on image and mask pairs",
        spec="arelu_meta.kinds.segment.spec:SegmentSpec",
        execution=_TRAINING,
        command="segment",
        task="phantom",
    ),
    Kind(
        "finetune",
        "arelu_meta.kinds.finetune.run:run_finetune",
        "fine-tune any network with any weights on a target set",
        spec="arelu_meta.kinds.finetune.spec:FineTuneSpec",
        command="finetune",
        task="finetune",
    ),
)


def names() -> list[str]:
    """Names of all kinds."""
    return _REGISTRY.names()


def entry(name: str) -> Kind:
    """One kind's entry."""
    return _REGISTRY[name]
