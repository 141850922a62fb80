"""One classification run: data, network, epochs, checkpoints and tracking wired together."""

import time
from typing import TypeAlias

import torch
from torch import nn

from arelu_meta import activations, backbones
from arelu_meta.activations.parameters import activation_values
from arelu_meta.console import progress
from arelu_meta.data.augment import augment
from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import SUBSETS, Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.result import ClassifyResult
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from arelu_meta.kinds.layer_log import LayerLog
from arelu_meta.kinds.result_text import name_of
from arelu_meta.kinds.sections import NetworkSection
from arelu_meta.kinds.session import Session, machine, session
from arelu_meta.kinds.split import load_split
from arelu_meta.kinds.supervised_sections import OptimizationSection
from arelu_meta.pictures.figures import activation_curves, confusion_figure, training_curve
from arelu_meta.runtime import processes
from arelu_meta.seeding import generator, global_stream
from arelu_meta.store.tracking import Tracker
from arelu_meta.training.fitting import Fitted, accuracy_on, as_plain, cross_entropy, fit, from_plain
from arelu_meta.training.speedups import PLAIN, Speedups
from arelu_meta.training.supervised import Epoch, SupervisedTrainer, predict

Prepared: TypeAlias = tuple[Split, SupervisedTrainer]


def run_classify(
    spec: ClassifySpec, execution: TrainingExecution, bar: progress.Bar, *, prepared: Prepared | None = None
) -> ClassifyResult:
    """Train and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        split, trainer = prepared or prepare(spec, execution, device)
        layers = LayerLog(trainer.network, split.train, trainer.loss, enabled=execution.layer_statistics)
        with session(
            spec,
            execution,
            bar,
            name=f"{spec.network.activation}-{spec.network.backbone}-"
            f"{name_of(spec.task, spec.data.dataset)}-seed{spec.seed}",
            tags={
                "device": str(device),
                "data_digest": split.train.digest,
            },
            datasets={part: getattr(split, part) for part in SUBSETS if len(getattr(split, part))},
            split=split,
        ) as opened:
            return fit_and_test(spec, trainer, split, layers, opened, keep_model=execution.keep_model)


def prepare(
    spec: ClassifySpec, execution: TrainingExecution, device: torch.device, *, split: Split | None = None
) -> Prepared:
    """Read and divide the images, unless they are given, and build the network and its trainer."""
    if split is None:
        root, last = execution.data_root or None, spec.evaluation.select == "last"
        split = load_split(spec.data, root=root, fit=spec.fit, train_on_validation=last).to(device)
    if len(split.train.class_names) < 2:
        raise InputError(f"{spec.data.dataset} has one class alone ({split.train.class_names[0]}); give two at least")
    network = build_classifier(spec.network, split.train, seed=spec.seed).to(device)
    speedups = Speedups(execution.channels_last, execution.compile, execution.fused)
    return split, make_trainer(network, split.train, spec.training, seed=spec.seed, speedups=speedups)


def build_classifier(section: NetworkSection, images: ImageSet, *, seed: int) -> nn.Module:
    """Build a network for an image set, its initial weights the same for every activation."""
    backbones.check_options(section.backbone, section.backbone_options)
    norm = {} if section.norm is None else {"norm": section.norm}
    with global_stream(seed, "weights"):
        return backbones.build(
            section.backbone,
            activation=activations.factory(section.activation, **section.activation_options),
            channels=images.channels,
            image_size=images.image_size,
            classes=len(images.class_names),
            **norm,
            **section.backbone_options,
        )


def make_trainer(
    network: nn.Module,
    images: ImageSet,
    settings: OptimizationSection,
    *,
    seed: int,
    stream: str = "batches",
    head: str | None = None,
    keep_statistics: bool = False,
    speedups: Speedups = PLAIN,
) -> SupervisedTrainer:
    """Make the trainer of a network on an image set; the order of the batches has a stream of its own.

    `head` is the path of the layer that frozen epochs train; None: the last one, as `head_parameters` finds it. With
    `keep_statistics` batch norms outside it stay as they are.
    """
    batches = Batches(images, settings.batch_size, generator(seed, stream), augment=augment(settings.augment))
    loss = cross_entropy(images, label_smoothing=settings.label_smoothing, class_weights=settings.class_weights)
    return SupervisedTrainer(
        network, batches, settings, loss, head=head, keep_statistics=keep_statistics, speedups=speedups
    )


def fit_and_test(
    spec: ClassifySpec | FineTuneSpec,
    trainer: SupervisedTrainer,
    split: Split,
    layers: LayerLog,
    opened: Session,
    *,
    keep_model: bool = True,
) -> ClassifyResult:
    """Train to the end or from a checkpoint on, test what was selected, and store it all."""
    start, sound = time.monotonic(), spec.evaluation.protocol == "sound"
    watched = split.validation if sound else split.test
    fitted, tracker = Fitted(), opened.tracker
    if opened.checkpoint is not None:
        trainer.load_state_dict(opened.checkpoint["trainer"])
        fitted = from_plain(opened.checkpoint["fitted"])
        layers.load_state_dict(opened.checkpoint["layers"])
    else:
        tracker.log_metrics(layers.measure(0), 0)
    with opened.bar("train", spec.training.epochs - trainer.done) as advance, global_stream(spec.seed, "training"):
        if opened.checkpoint is not None:
            torch.set_rng_state(opened.checkpoint["global_random"])

        def on_epoch(epoch: Epoch, values: dict[str, float]) -> None:
            tracker.log_metrics({**values, **activation_values(trainer.network)}, epoch.number)
            tracker.log_metrics({"train/images_per_second": epoch.images_per_second}, epoch.number)
            tracker.log_metrics(layers.measure(epoch.number), epoch.number)
            opened.save(
                {
                    "trainer": trainer.state_dict(),
                    "fitted": as_plain(fitted),
                    "layers": layers.state_dict(),
                    "global_random": torch.get_rng_state(),
                }
            )
            speed = f"{epoch.images_per_second:.0f} images/s"
            advance(f"loss {epoch.loss:.3f}  accuracy {100 * epoch.accuracy:.1f} %  {speed}")

        fit(
            trainer,
            watched="validation" if sound else "test",
            score=accuracy_on(watched) if len(watched) else None,
            on_epoch=on_epoch,
            patience=spec.training.patience,
            resumed=fitted,
        )
    trainer.tested.load_state_dict(fitted.best_state)
    result = ClassifyResult(
        spec=spec,
        network=trainer.tested,
        class_names=split.test.class_names,
        labels=split.test.labels.cpu().numpy(),
        logits=predict(trainer.tested, split.test).numpy(),
        held_out=split.held_out,
        verified=split.train.provenance.verified,
        selected_epoch=fitted.selected,
        curves=fitted.curves,
        seconds=time.monotonic() - start,
        run_id=tracker.run_id,
        experiment_id=tracker.experiment_id,
        tracking_uri=tracker.uri,
    )
    if processes.rank() == 0:
        _record(result, layers, tracker)
        if keep_model:
            tracker.log_network(result.network, split.test)
    return result


def _record(result: ClassifyResult, layers: LayerLog, tracker: Tracker) -> None:
    spec, test, last = result.spec, result.test, result.spec.training.epochs
    prefix = spec.evaluation.final
    values = {f"{prefix}/accuracy": test.mean, f"{prefix}/n": test.n}
    values |= {f"{prefix}/accuracy_ci95_low": test.low, f"{prefix}/accuracy_ci95_high": test.high}
    if "validation" in result.curves:
        values["validation/selected_accuracy"] = max(score for _, score in result.curves["validation"])
    if result.top5 is not None:
        values[f"{prefix}/accuracy_top5"] = result.top5
    tracker.log_metrics(values, last)
    title = f"{spec.network.activation} in {spec.network.backbone} on {result.goal}"
    tracker.log_figure(
        training_curve(result.curves, title=title, ylabel="accuracy", xlabel="epoch"), "figures/training_curve.png"
    )
    tracker.log_figure(confusion_figure(result.confusion, result.class_names, title=title), "figures/confusion.png")
    drawn = activation_curves(result.network, title=f"learned activations: {title}")
    if drawn is not None:
        tracker.log_figure(drawn, "figures/activation_curves.png")
    course = layers.figure(title=f"layers over training: {title}")
    if course is not None:
        tracker.log_figure(course, "figures/layers.png")
    rows = zip(result.labels.tolist(), result.logits.argmax(1).tolist(), strict=True)
    tracker.log_text("label,prediction\n" + "".join(f"{label},{answer}\n" for label, answer in rows), "predictions.csv")
