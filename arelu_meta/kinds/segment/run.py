"""One segmentation run: a U-Net on image and mask pairs, judged patient by patient."""

import time

import torch
from torch import Tensor, nn

from arelu_meta import activations, backbones
from arelu_meta.activations.parameters import activation_values
from arelu_meta.console import progress
from arelu_meta.data.batches import MaskBatches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import SUBSETS, Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.layer_log import LayerLog
from arelu_meta.kinds.result_text import name_of
from arelu_meta.kinds.segment.result import SegmentResult
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.kinds.session import Session, machine, session
from arelu_meta.kinds.split import load_split
from arelu_meta.metrics import volume_dice
from arelu_meta.pictures.figures import activation_curves, overlay_figure, training_curve
from arelu_meta.runtime import processes
from arelu_meta.seeding import generator, global_stream
from arelu_meta.store.tracking import Tracker
from arelu_meta.training.fitting import Fitted, as_plain, fit, from_plain
from arelu_meta.training.speedups import Speedups
from arelu_meta.training.supervised import Epoch, SupervisedTrainer, predict


def run_segment(spec: SegmentSpec, execution: TrainingExecution, bar: progress.Bar) -> SegmentResult:
    """Train and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        root, last = execution.data_root or None, spec.evaluation.select == "last"
        split = load_split(spec.data, root=root, fit=spec.fit, train_on_validation=last).to(device)
        affine = spec.training.augment == "affine"
        batches = MaskBatches(split.train, spec.training.batch_size, generator(spec.seed, "batches"), affine=affine)
        if split.train.groups is None:
            raise InputError(f"{split.train.name} names no patients, and the result is judged patient by patient")
        with global_stream(spec.seed, "weights"):
            network = backbones.build(
                "unet",
                activation=activations.factory(spec.network.activation, **spec.network.activation_options),
                channels=split.train.channels,
                image_size=split.train.image_size,
                classes=1,
                filters=spec.network.filters,
            ).to(device)
        speedups = Speedups(execution.channels_last, execution.compile, execution.fused)
        trainer = SupervisedTrainer(network, batches, spec.training, dice_loss, speedups=speedups)
        layers = LayerLog(network, split.train, dice_loss, enabled=execution.layer_statistics)
        with session(
            spec,
            execution,
            bar,
            name=f"{spec.network.activation}-unet-{name_of(spec.task, spec.data.dataset)}-seed{spec.seed}",
            tags={
                "device": str(device),
                "data_digest": split.train.digest,
            },
            datasets={part: getattr(split, part) for part in SUBSETS if len(getattr(split, part))},
            split=split,
        ) as opened:
            return _fit_and_test(spec, trainer, split, layers, opened, keep_model=execution.keep_model)


def dice_loss(logits: Tensor, masks: Tensor) -> Tensor:
    """One minus the soft Dice coefficient of the whole batch, smoothed by one pixel (Buda et al. 2019).

    >>> round(dice_loss(torch.full((1, 1, 2, 2), 50.0), torch.ones(1, 1, 2, 2)).item(), 6)
    0.0
    """
    probability = logits.sigmoid()
    overlap = (probability * masks).sum()
    return 1 - (2 * overlap + 1) / (probability.sum() + masks.sum() + 1)


def patient_dice(network: nn.Module, images: ImageSet) -> dict[str, float]:
    """Dice coefficient of each patient's volume, by name."""
    if images.masks is None or images.groups is None:
        raise InputError(f"{images.name} has no masks or names no patients")
    marked = predict(network, images, batch=32) > 0
    scores = volume_dice(marked, images.masks.cpu().bool(), images.groups.cpu())
    return {images.group_names[number]: score for number, score in scores.items()}


def _fit_and_test(
    spec: SegmentSpec,
    trainer: SupervisedTrainer,
    split: Split,
    layers: LayerLog,
    opened: Session,
    *,
    keep_model: bool,
) -> SegmentResult:
    start, sound = time.monotonic(), spec.evaluation.protocol == "sound"
    watched = "validation" if sound else "test"
    fitted = Fitted()
    if opened.checkpoint is not None:
        trainer.load_state_dict(opened.checkpoint["trainer"])
        fitted = from_plain(opened.checkpoint["fitted"])
        layers.load_state_dict(opened.checkpoint["layers"])
    else:
        opened.tracker.log_metrics(layers.measure(0), 0)

    def score(current: SupervisedTrainer) -> float:
        by_patient = patient_dice(current.tested, getattr(split, watched))
        return sum(by_patient.values()) / len(by_patient)

    with opened.bar("train", spec.training.epochs - trainer.done) as advance, global_stream(spec.seed, "training"):
        if opened.checkpoint is not None:
            torch.set_rng_state(opened.checkpoint["global_random"])

        def on_epoch(epoch: Epoch, values: dict[str, float]) -> None:
            metrics = {"train/loss": epoch.loss, **activation_values(trainer.network), **layers.measure(epoch.number)}
            note = f"loss {epoch.loss:.3f}"
            if f"{watched}/accuracy" in values:
                dice = metrics[f"{watched}/dice"] = values[f"{watched}/accuracy"]
                note += f"  {watched} Dice {100 * dice:.1f} %"
            opened.tracker.log_metrics(metrics, epoch.number)
            opened.save(
                {
                    "trainer": trainer.state_dict(),
                    "fitted": as_plain(fitted),
                    "layers": layers.state_dict(),
                    "global_random": torch.get_rng_state(),
                }
            )
            advance(f"{note}  {epoch.images_per_second:.1f} images/s")

        fit(
            trainer,
            watched=watched,
            score=score if len(getattr(split, watched)) else None,
            on_epoch=on_epoch,
            patience=spec.training.patience,
            resumed=fitted,
        )
    trainer.tested.load_state_dict(fitted.best_state)
    test = split.test
    counts = torch.bincount(test.groups.cpu()) if test.groups is not None else torch.zeros(0)
    patients = patient_dice(trainer.tested, test)
    result = SegmentResult(
        spec=spec,
        network=trainer.tested,
        patients=patients,
        slices={name: int(counts[test.group_names.index(name)]) for name in patients},
        held_out=split.held_out,
        verified=split.train.provenance.verified,
        selected_epoch=fitted.selected,
        curves={f"{watched} Dice": fitted.curves[watched]} if watched in fitted.curves else {},
        seconds=time.monotonic() - start,
        run_id=opened.tracker.run_id,
        experiment_id=opened.tracker.experiment_id,
        tracking_uri=opened.tracker.uri,
    )
    if processes.rank() == 0:
        _record(result, test, layers, opened.tracker)
        if keep_model:
            opened.tracker.log_network(result.network, test)
    return result


def _record(result: SegmentResult, test: ImageSet, layers: LayerLog, tracker: Tracker) -> None:
    spec, last = result.spec, result.spec.training.epochs
    prefix = spec.evaluation.final
    tracker.log_metrics({f"{prefix}/dice": result.dice, f"{prefix}/n": len(result.patients)}, last)
    title = f"{spec.network.activation} in unet on {spec.task}"
    if result.curves:
        figure = training_curve(result.curves, title=title, ylabel="Dice coefficient", xlabel="epoch")
        tracker.log_figure(figure, "figures/training_curve.png")
    drawn = activation_curves(result.network, title=f"learned activations: {title}")
    if drawn is not None:
        tracker.log_figure(drawn, "figures/activation_curves.png")
    course = layers.figure(title=f"layers over training: {title}")
    if course is not None:
        tracker.log_figure(course, "figures/layers.png")
    masks = test.masks
    if masks is not None:
        size = masks.flatten(1).sum(1)
        shown = size.argsort(descending=True)[:6]
        marked = predict(result.network, test.subset(shown.cpu())) > 0
        tracker.log_figure(
            overlay_figure(test.images[shown].cpu(), marked, masks[shown].cpu() > 0, title=title),
            "figures/overlays.png",
        )
    rows = "".join(f"{name},{score:.6f},{result.slices[name]}\n" for name, score in result.patients.items())
    tracker.log_text(f"patient,dice,slices\n{rows}", "patients.csv")
