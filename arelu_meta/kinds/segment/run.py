"""One segmentation run: a network on image and mask pairs, judged patient by patient."""

from typing import Any

import torch
from torch import nn

from arelu_meta.console import progress
from arelu_meta.data.batches import MaskBatches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.networks import build_segmenter, check_logits
from arelu_meta.kinds.results import name_of
from arelu_meta.kinds.segment.result import SegmentResult
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.kinds.session import load_split, machine
from arelu_meta.kinds.supervised import Measure, Prepared, run_supervised
from arelu_meta.metrics import volume_dice
from arelu_meta.seeding import generator
from arelu_meta.training.losses import dice_loss
from arelu_meta.training.supervised import SupervisedTrainer, predict


def run_segment(
    spec: SegmentSpec, execution: TrainingExecution, bar: progress.Bar, *, prepared: Prepared | None = None
) -> SegmentResult:
    """Train and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        result: SegmentResult = run_supervised(
            spec,
            execution,
            bar,
            prepared or prepare(spec, execution, device),
            name=f"{spec.network.activation}-{spec.network.backbone}-"
            f"{name_of(spec.task, spec.data.dataset)}-seed{spec.seed}",
            shape=spec.fit,
            log_layers=execution.layer_statistics,
            keep_model=execution.keep_model,
        )
        return result


def prepare(
    spec: SegmentSpec, execution: TrainingExecution, device: torch.device, *, split: Split | None = None
) -> Prepared:
    """Read and divide the images, unless they are given, and build the network and its trainer."""
    if split is None:
        split = load_split(
            spec.data,
            root=execution.data_root or None,
            shape=spec.fit,
            train_on_validation=not spec.evaluation.validates,
        ).to(device)
    affine = spec.training.augment == "affine"
    batches = MaskBatches(split.train, spec.training.batch_size, generator(spec.seed, "batches"), affine=affine)
    if split.train.groups is None:
        raise InputError(f"{split.train.name} names no patients, and the result is judged patient by patient")
    network = build_segmenter(spec.network, split.train, seed=spec.seed).to(device)
    check_logits(network, split.train, (1, *split.train.image_size), spec.network.backbone)
    trainer = SupervisedTrainer(
        network,
        batches,
        dice_loss,
        **spec.training.trainer_options(),
        channels_last=execution.channels_last,
        compile=execution.compile,
        fused=execution.fused,
    )
    measure = Measure("dice", "Dice", dice_loss, mean_dice, SegmentResult, volume_outputs)
    return Prepared(split, trainer, measure)


def patient_dice(network: nn.Module, images: ImageSet) -> dict[str, float]:
    """Dice coefficient of each patient's volume, by name."""
    if images.masks is None or images.groups is None:
        raise InputError(f"{images.name} has no masks or names no patients")
    predicted = predict(network, images, batch=32) > 0
    scores = volume_dice(predicted, images.masks.cpu().bool(), images.groups.cpu())
    return {images.group_names[number]: score for number, score in scores.items()}


def mean_dice(network: nn.Module, images: ImageSet) -> float:
    """Dice coefficient, mean over patients."""
    by_patient = patient_dice(network, images)
    return sum(by_patient.values()) / len(by_patient)


def volume_outputs(network: nn.Module, test: ImageSet) -> dict[str, Any]:
    """Give Dice coefficient and number of slices by patient: the fields of a result."""
    patients = patient_dice(network, test)
    counts = torch.bincount(test.groups.cpu()) if test.groups is not None else torch.zeros(0)
    return {"patients": patients, "slices": {name: int(counts[test.group_names.index(name)]) for name in patients}}
