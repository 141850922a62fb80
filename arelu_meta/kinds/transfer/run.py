"""One transfer run: pre-train on a source, then the target without tuning, from scratch, and fine-tuned."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from arelu_meta import data
from arelu_meta.activations.parameters import activation_values
from arelu_meta.analysis.speed import speed_metrics
from arelu_meta.backbones import side_for
from arelu_meta.console import progress
from arelu_meta.data import splits
from arelu_meta.data.files.image_cache import keep_decoded
from arelu_meta.data.inputs import fit_images
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.run import accuracy_on, classifier_trainer
from arelu_meta.kinds.execution import BatchExecution
from arelu_meta.kinds.images import check_classes, inputs_of_run, reader_options, with_pixels
from arelu_meta.kinds.networks import build_classifier, check_classifier
from arelu_meta.kinds.sections import InputSection
from arelu_meta.kinds.session import Session, machine, open_session, to_device
from arelu_meta.kinds.supervised import log_step_losses, training_stage
from arelu_meta.kinds.supervised_spec import OptimizationSection
from arelu_meta.kinds.transfer.result import TransferResult
from arelu_meta.kinds.transfer.spec import STAGES, DomainsSection, TransferSpec
from arelu_meta.pictures.figures import activation_curves, training_curve
from arelu_meta.runtime import processes
from arelu_meta.seeding import generator_states
from arelu_meta.store.tracker import Tracker
from arelu_meta.training.forward import evaluation_batch, predict
from arelu_meta.training.losses import mean_loss
from arelu_meta.training.supervised import SupervisedTrainer


@dataclass
class StageProgress:
    """How far the run has come: the current stage, test accuracy by stage and epoch, and weights of finished stages."""

    stage: int = 0
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    untuned: float = 0.0
    pretrained: dict[str, Tensor] = field(default_factory=dict)
    tuned: dict[str, Tensor] = field(default_factory=dict)


def run_transfer(spec: TransferSpec, execution: BatchExecution, bar: progress.Bar) -> TransferResult:
    """Train and test all settings of one activation and seed."""
    root = execution.data_root or None
    with machine(execution) as device:
        source, target = (
            load_domain(
                name,
                spec.domains,
                spec.fit,
                root,
                train_on_validation=not spec.evaluation.validates,
                bar=bar,
                side=side_for(spec.network.backbone),
            )
            for name in (spec.domains.source, spec.domains.target)
        )
        source, target = to_device(source, device, execution), to_device(target, device, execution)
        _check_same_problem(source, target)
        check_classifier(spec, source.train)  # before a run is opened
        with open_session(
            spec,
            execution,
            bar,
            name=f"{spec.network.activation}-{spec.task}-seed{spec.seed}",
            tags={
                "device": str(device),
                "source_digest": source.train.digest,
                "data_digest": target.train.digest,
            },
            datasets={"source": source.train, "train": target.train, "test": target.test},
            split=target,
        ) as session:
            done = _run_stages(spec, source, target, session, execution.trainer_options())
            network = build_classifier(spec.network, target.train, seed=spec.seed).to(device)
            network.load_state_dict(done.tuned)
            result = TransferResult(
                spec=spec,
                network=network,
                untuned=done.untuned,
                curves=done.curves,
                n=len(target.test),
                verified=source.train.provenance.verified and target.train.provenance.verified,
                seconds=session.seconds,
                run_id=session.tracker.run_id,
                experiment_id=session.tracker.experiment_id,
                tracking_uri=session.tracker.uri,
            )
            if processes.rank() == 0:
                _record(result, target, session.tracker)
            return session.described(result)


def load_domain(
    name: str,
    section: DomainsSection,
    shape: InputSection,
    root: str | None,
    *,
    train_on_validation: bool = False,
    bar: progress.Bar = progress.silent,
    side: int = 32,
) -> Split:
    """Read a set, make it fit the network, and divide it as published, or by image where it has no parts of its own."""
    images = fit_images(
        data.load(name, root=root, **reader_options(name, {}, shape, side=side)),
        channels=shape.channels,
        image_size=shape.image_size,
        resize=shape.resize,
    )
    check_classes(images)
    images = keep_decoded({name: images}, bar)[name]
    published = {"train", "test"} <= set(images.subsets)
    divide = splits.published if published else splits.by_image
    split = divide(images, validation=section.validation, seed=section.split_seed)
    if train_on_validation:
        split = splits.joined(images, split)
    return with_pixels(split, shape.normalise)


def _check_same_problem(source: Split, target: Split) -> None:
    ours, theirs = source.train, target.train
    if len(ours.class_names) != len(theirs.class_names):
        raise InputError(
            f"{ours.name} has {len(ours.class_names)} classes and {theirs.name} {len(theirs.class_names)}; "
            f"a network that is tested untuned on the target needs the same ones"
        )
    if (ours.channels, ours.image_size) != (theirs.channels, theirs.image_size):
        raise InputError(
            f"{ours.name} is {ours.channels}x{ours.image_size}, {theirs.name} {theirs.channels}x{theirs.image_size}; "
            f"bring both to one shape with `channels` and `image_size`"
        )


def _run_stages(
    spec: TransferSpec, source: Split, target: Split, session: Session, options: dict[str, Any]
) -> StageProgress:
    """Pre-train, train from scratch and fine-tune, or what of it a resumed run has left."""
    checkpoint = session.checkpoint
    reached = StageProgress(**checkpoint["progress"]) if checkpoint else StageProgress()
    resumed = reached.stage if checkpoint and checkpoint["trainer"] else None
    pretraining = OptimizationSection(
        lr=spec.pretraining.pretrain_lr,
        epochs=spec.pretraining.pretrain_epochs,
        batch_size=spec.training.batch_size,
    )
    while reached.stage < len(STAGES):
        stage = STAGES[reached.stage]
        settings, split = (pretraining, source) if stage == "pretrain" else (spec.training, target)
        network = build_classifier(spec.network, split.train, seed=spec.seed).to(split.train.device)
        if stage == "finetune":
            network.load_state_dict(reached.pretrained)
        stream = f"batches/{split.train.name}"
        trainer = classifier_trainer(network, split.train, settings, seed=spec.seed, stream=stream, **options)
        if checkpoint and reached.stage == resumed:
            trainer.load_state_dict(checkpoint["trainer"])
        _run_stage(spec, trainer, split, reached, session)
        weights = {key: value.clone() for key, value in trainer.tested.state_dict().items()}
        if stage == "pretrain":
            reached.pretrained = weights
            reached.untuned = accuracy_on(network, target.test, **_evaluation_options(trainer))
        elif stage == "finetune":
            reached.tuned = weights
        reached.stage += 1
        session.save({"progress": vars(reached), "trainer": None})
    return reached


def _evaluation_options(trainer: SupervisedTrainer) -> dict[str, Any]:
    """How many images are answered at once, and in which number format."""
    batch = evaluation_batch(trainer.batches.images.device, trainer.batches.batch_size)
    return {"batch": batch, "precision": trainer.precision}


def _run_stage(
    spec: TransferSpec, trainer: SupervisedTrainer, split: Split, reached: StageProgress, session: Session
) -> None:
    """Train one stage to its end, testing after every epoch; epochs are fixed, so nothing is selected on the test."""
    stage, target = STAGES[reached.stage], spec.domains.target
    labels = {
        "pretrain": spec.domains.source,
        "scratch": f"{target}, from scratch",
        "finetune": f"{target}, fine-tuning",
    }
    curve = reached.curves.setdefault(stage, [])
    options = _evaluation_options(trainer)
    with training_stage(session, trainer, labels[stage], seed=spec.seed, stream=f"training/{stage}") as advance:
        for epoch in trainer.train():
            score = accuracy_on(trainer.tested, split.test, **options)
            curve.append((epoch.number, score))
            values = {f"{stage}/loss": epoch.loss, f"{stage}/test_accuracy": score}
            if len(split.validation):
                output, batch_size = predict(trainer.tested, split.validation, **options), trainer.batches.batch_size
                loss = mean_loss(trainer.loss, output, split.validation, batch_size=batch_size)
                values[f"{stage}/validation_loss"] = loss
            log_step_losses(session.tracker, stage, epoch, trainer.epochs)
            if stage == "finetune":
                values |= activation_values(trainer.network)
            session.tracker.log_metrics(values, epoch.number)
            session.save({"progress": vars(reached), "trainer": trainer.state_dict(), **generator_states()})
            advance(f"loss {epoch.loss:.3f}  test {100 * score:.1f} %  {epoch.images_per_second:.0f} images/s")


def _record(result: TransferResult, target: Split, tracker: Tracker) -> None:
    spec, final = result.spec, result.spec.evaluation.final
    values = {f"{final}/{setting}": estimate.mean for setting, estimate in result.rows().items()}
    values |= speed_metrics("finetune/test_accuracy", result.curves["finetune"], "epochs")
    tracker.log_metrics(values, spec.training.epochs)
    title = f"{spec.network.activation}, {spec.task}"
    figure = training_curve(result.curves, title=title, ylabel="test accuracy of the stage's set", xlabel="epoch")
    tracker.log_figure(figure, "figures/training_curve.png")
    curves = activation_curves(result.network, title=f"learned activations: {title}")
    if curves is not None:
        tracker.log_figure(curves, "figures/activation_curves.png", spec.training.epochs)
    tracker.log_network(result.network, target.test, inputs_of_run(target.test, spec.fit))
