"""Kinds of runs by name: what a task file's `kind` stands for, everything a kind says of itself, and `run`.

A new one is a folder here (`spec.py`, `run.py`, `result.py`) and an entry below; the contract test then runs it.
Listing kinds imports no torch.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arelu_meta import backbones
from arelu_meta.errors import InputError
from arelu_meta.registry import Entry, Registry, load_attribute

if TYPE_CHECKING:
    from arelu_meta.console.progress import Bar
    from arelu_meta.kinds.execution import Execution
    from arelu_meta.kinds.results import Result
    from arelu_meta.kinds.sections import Spec

__all__ = ["Kind", "entry", "names", "run"]

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
    sound_only: tuple[Place, ...] = ()
    """settings that task files make for the protocol sound; where paper is asked for, they are left out"""
    ours_only: tuple[Place, ...] = ()
    """settings that task files make for networks of ours; where one of others is named, they are left out"""
    prepare: str = ""
    """builds what a run needs before it is opened, as package.module:function; for kinds that run several seeds"""
    check: str = "arelu_meta.kinds.networks:check_classifier"
    """builds the network of a spec for an image set and tries it, as package.module:function"""
    stackable: bool = False
    """whether several seeds can be trained as one stacked network"""

    @property
    def spec_class(self) -> "type[Spec]":
        """Import the spec class."""
        return load_attribute(self.spec)

    @property
    def execution_class(self) -> "type[Execution]":
        """Import the class of the execution settings."""
        return load_attribute(self.execution)

    def task_values(self, values: Mapping[str, Any], replacing: Mapping[str, Any]) -> dict[str, Any]:
        """Give the values of a task file that stay when others are to replace some of them.

        A protocol brings its own settings: where `paper` replaces `sound`, those that the file makes for `sound` go,
        unless they are named among the replacing ones; so do those for a network of ours where one of others does.

        Args:
            values: the task file, sections as mappings.
            replacing: flags, or an experiment's settings, by name; dotted names end in that of the flag.

        Returns:
            A copy of `values`, in which nothing is replaced yet.
        """
        kept = copy.deepcopy(dict(values))
        named = {name.rpartition(".")[2]: value for name, value in replacing.items()}
        own = kept.get("evaluation", {})
        going: list[Place] = []
        if named.get("protocol") == "paper" and isinstance(own, dict) and own.get("protocol") != "paper":
            going += self.sound_only
        if backbones.is_pretrained(str(named.get("backbone", ""))):
            going += self.ours_only
        for section, key in going:
            if key not in named and isinstance(kept.get(section), dict):
                kept[section].pop(key, None)
        return kept


_BATCHES, _TRAINING = (f"arelu_meta.kinds.execution:{name}" for name in ("BatchExecution", "TrainingExecution"))
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
        check="arelu_meta.kinds.networks:check_few_shot",
        stages=2,
        step="iteration",
        lengths=(("training", "iterations"), ("training", "halve_lr_every")),
        sound_only=(("training", "episode_clip"), ("training", "outer_clip")),
        ours_only=(
            *(("network", key) for key in ("activation", "activation_options", "backbone_options", "norm", "init")),
            *(("fit", key) for key in ("channels", "image_size", "normalise")),
        ),
    ),
    Kind(
        "classify",
        "arelu_meta.kinds.classify.run:run_classify",
        "train and test a classifier",
        spec="arelu_meta.kinds.classify.spec:ClassifySpec",
        execution=_TRAINING,
        command="classify",
        task="digits_classify",
        prepare="arelu_meta.kinds.classify.run:prepare",
        stackable=True,
    ),
    Kind(
        "transfer",
        "arelu_meta.kinds.transfer.run:run_transfer",
        "pre-train on a source set, fine-tune on a target set",
        spec="arelu_meta.kinds.transfer.spec:TransferSpec",
        execution=_BATCHES,
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
        prepare="arelu_meta.kinds.segment.run:prepare",
        check="arelu_meta.kinds.networks:check_segmenter",
    ),
    Kind(
        "finetune",
        "arelu_meta.kinds.finetune.run:run_finetune",
        "fine-tune any network with any weights on a target set",
        spec="arelu_meta.kinds.finetune.spec:FineTuneSpec",
        execution=_BATCHES,
        command="finetune",
        task="finetune",
        check="arelu_meta.kinds.networks:check_finetuned",
    ),
    Kind(
        "adapt",
        "arelu_meta.kinds.adapt.run:run_adapt",
        "fit a classifier to a few images of each class (FOLDER, or --data) on a pretrained network",
        spec="arelu_meta.kinds.adapt.spec:AdaptSpec",
        command="adapt",
        task="adapt",
        check="arelu_meta.kinds.networks:check_adapted",
        stages=2,
        step="draw",
        lengths=(("data", "draws"),),
    ),
)


def names() -> list[str]:
    """Names of all kinds."""
    return _REGISTRY.names()


def entry(name: str) -> Kind:
    """One kind's entry."""
    return _REGISTRY[name]


def run(spec: "Spec", execution: "Execution | None" = None, *, bar: "Bar | None" = None) -> "Result":
    """Train and test what a spec says, tracked in MLflow.

    Torch's threads, its random numbers and the allocator are left as they were.

    Args:
        spec: what the run is, such as a `FewShotSpec` or a `ClassifySpec`; its identity is the run's.
        execution: how it is carried out: device, threads, experiment, resuming. Settings that the kind of run does not
            have are left out; None: all defaults.
        bar: shows the progress, such as `arelu_meta.console.progress.shown`; None: shows nothing.

    Returns:
        The result of the kind: the trained network, its scores, the id of its MLflow run, and `report()` as text.

    Raises:
        InputError: the spec asks for what the data, the network or this machine does not have; no run is opened.
        RunError: the run cannot go on, such as when the loss is no longer finite.

    Example:
        >>> import arelu_meta
        >>> from arelu_meta.kinds.classify.spec import ClassifySpec
        >>> spec = ClassifySpec(task="mine", data={"dataset": "digits"}, training={"epochs": 1})
        >>> result = arelu_meta.run(spec)  # doctest: +SKIP
        >>> print(result.report())  # doctest: +SKIP
    """
    from arelu_meta.console import progress
    from arelu_meta.kinds.execution import Execution

    execution = execution or Execution()
    if getattr(execution, "seeds", ""):
        raise InputError("`seeds` are several runs; use arelu_meta.kinds.seeds.run_seeds")
    kind = entry(spec.kind)
    result: Result = kind.load()(spec, kind.execution_class.of(execution), bar or progress.silent)
    return result
