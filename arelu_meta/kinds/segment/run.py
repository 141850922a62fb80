"""One segmentation run: a network on image and mask pairs, judged patient by patient."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.console import progress
from arelu_meta.data.batches import MaskBatches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import Split
from arelu_meta.data.volumes import prepare_volumes, slice_weights
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.images import load_split
from arelu_meta.kinds.networks import build_segmenter, check_logits
from arelu_meta.kinds.results import name_of
from arelu_meta.kinds.segment.result import SegmentResult
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.kinds.session import machine, to_device
from arelu_meta.kinds.supervised import Measure, Prepared, run_supervised
from arelu_meta.metrics import largest_component, volume_dice
from arelu_meta.seeding import generator
from arelu_meta.training.forward import predict
from arelu_meta.training.losses import dice_loss
from arelu_meta.training.supervised import SupervisedTrainer

BATCH = 32  # slices that are marked at once when a network is judged


def run_segment(
    spec: SegmentSpec, execution: TrainingExecution, bar: progress.Bar, *, prepared: Prepared | None = None
) -> SegmentResult:
    """Train and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        result: SegmentResult = run_supervised(
            spec,
            execution,
            bar,
            prepared or prepare(spec, execution, device, bar=bar),
            name=f"{spec.network.activation}-{spec.network.backbone}-"
            f"{name_of(spec.task, spec.data.dataset)}-seed{spec.seed}",
            shape=spec.fit,
            layers=execution.layers,
            keep_model=execution.keep_model,
        )
        return result


def prepare(
    spec: SegmentSpec,
    execution: TrainingExecution,
    device: torch.device,
    *,
    split: Split | None = None,
    bar: progress.Bar = progress.silent,
) -> Prepared:
    """Read and divide the images, unless they are given, and build the network and its trainer."""
    if split is None:
        split = to_device(read_split(spec, execution.data_root or None, bar), device, execution)
    if split.train.groups is None and split.train.masks is not None:
        raise InputError(f"{split.train.name} names no patients, and the result is judged patient by patient")
    batches = MaskBatches(
        split.train,
        spec.training.batch_size,
        generator(spec.seed, "batches"),
        affine=spec.training.augment == "affine",
        crop_scale=spec.training.crop_scale if spec.training.augment == "standard" else (),
        weights=slice_weights(split.train) if spec.volumes.draw_by_area else None,
    )
    network = build_segmenter(spec.network, split.train, seed=spec.seed).to(device)
    check_logits(network, split.train, (1, *split.train.image_size), spec.network.backbone)
    trainer = SupervisedTrainer(
        network,
        batches,
        dice_loss,
        **spec.training.trainer_options(),
        **execution.trainer_options(),
    )
    largest = spec.volumes.largest_component
    score, outputs = partial(mean_dice, largest=largest), partial(volume_outputs, largest=largest)
    return Prepared(split, trainer, Measure("dice", "Dice", dice_loss, score, SegmentResult, outputs, batch=BATCH))


def read_split(spec: SegmentSpec, root: str | None, bar: progress.Bar = progress.silent) -> Split:
    """Read the images, prepare the volumes, and divide them as the spec says."""
    return load_split(
        spec.data,
        root=root,
        shape=spec.fit,
        train_on_validation=not spec.evaluation.validates,
        bar=bar,
        prepare=_volume_preparation(spec) if spec.volumes.prepares else None,
    )


def _volume_preparation(spec: SegmentSpec) -> Callable[[ImageSet], ImageSet]:
    """What is done with the slices of each patient before they are divided."""
    return partial(
        prepare_volumes,
        image_size=spec.fit.image_size,
        drop_ends=spec.volumes.drop_ends,
        crop=spec.volumes.crop_volumes,
        percentiles=spec.volumes.percentiles,
        standardise=spec.volumes.standardise_volumes,
        resize=spec.fit.resize,
    )


def patient_dice(network: nn.Module, images: ImageSet, *, largest: bool = False) -> dict[str, float]:
    """Dice coefficient of each patient's volume, by name; with `largest`, of the largest part of what is predicted."""
    return _dice_of(predict(network, images, batch=BATCH), images, largest=largest)


def _dice_of(logits: Tensor, images: ImageSet, *, largest: bool) -> dict[str, float]:
    if images.masks is None or images.groups is None:
        raise InputError(f"{images.name} has no masks or names no patients")
    predicted, groups = logits > 0, images.groups.cpu()
    for patient in groups.unique() if largest else ():
        slices = groups == patient
        predicted[slices, 0] = largest_component(predicted[slices, 0])  # (slices, H, W)
    scores = volume_dice(predicted, images.masks.cpu().bool(), groups)
    return {images.group_names[number]: score for number, score in scores.items()}


def mean_dice(logits: Tensor, images: ImageSet, *, largest: bool = False) -> float:
    """Dice coefficient of what is marked, mean over patients."""
    by_patient = _dice_of(logits, images, largest=largest)
    return sum(by_patient.values()) / len(by_patient)


def volume_outputs(logits: Tensor, test: ImageSet, *, largest: bool = False) -> dict[str, Any]:
    """Give Dice coefficient and number of slices by patient: the fields of a result."""
    patients = _dice_of(logits, test, largest=largest)
    counts = torch.bincount(test.groups.cpu()) if test.groups is not None else torch.zeros(0)
    return {"patients": patients, "slices": {name: int(counts[test.group_names.index(name)]) for name in patients}}
