"""One transfer run: pre-train on a source, then the target without tuning, from scratch, and fine-tuned."""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from arelu_meta import data
from arelu_meta.activations.parameters import activation_values
from arelu_meta.console import progress
from arelu_meta.data import splits
from arelu_meta.data.augment import augment
from arelu_meta.data.inputs import fit_images
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.run import build_classifier, make_trainer
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.session import Session, machine, session
from arelu_meta.kinds.split import EVALUATION_SEED, without_statistics
from arelu_meta.kinds.supervised_sections import FitSection, OptimizationSection
from arelu_meta.kinds.transfer.result import TransferResult
from arelu_meta.kinds.transfer.spec import TransferSpec
from arelu_meta.metrics import accuracy
from arelu_meta.pictures.figures import activation_curves, training_curve
from arelu_meta.runtime import processes
from arelu_meta.seeding import global_stream
from arelu_meta.store.tracking import Tracker
from arelu_meta.training.supervised import SupervisedTrainer, predict

STAGES = ("pretrain", "scratch", "finetune")


@dataclass
class Course:
    """How far the run has come: the stage at work, test accuracy by stage and epoch, the pre-trained weights."""

    stage: int = 0
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    untuned: float = 0.0
    pretrained: dict[str, Tensor] = field(default_factory=dict)
    tuned: dict[str, Tensor] = field(default_factory=dict)


def run_transfer(spec: TransferSpec, execution: Execution, bar: progress.Bar) -> TransferResult:
    """Train and test all settings of one activation and seed."""
    root = execution.data_root or None
    with machine(execution) as device:
        source = load_domain(spec.domains.source, spec.domains.validation, spec.fit, root).to(device)
        target = load_domain(spec.domains.target, spec.domains.validation, spec.fit, root).to(device)
        _check_same_problem(source, target)
        build_classifier(spec.network, source.train, seed=spec.seed)
        augment(spec.training.augment)
        with session(
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
        ) as opened:
            return _run_stages(spec, source, target, opened)


def load_domain(name: str, validation: float, fit: FitSection, root: str | None) -> Split:
    """Read a set, make it fit the network, and divide it as published, or by image where it has no parts of its own."""
    images = fit_images(data.load(name, root=root), channels=fit.channels, image_size=fit.image_size, resize=fit.resize)
    published = {"train", "test"} <= set(images.subsets)
    divide = splits.published if published else splits.by_image
    split = divide(images, validation=validation, seed=EVALUATION_SEED)
    return split if fit.normalise else without_statistics(split)


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
            f"bring both to one shape with --channels and --image-size"
        )


def _run_stages(
    spec: TransferSpec,
    source: Split,
    target: Split,
    opened: Session,
) -> TransferResult:
    start, checkpoint, tracker = time.monotonic(), opened.checkpoint, opened.tracker
    course = Course(**checkpoint["course"]) if checkpoint else Course()
    pretraining = OptimizationSection(
        lr=spec.pretraining.pretrain_lr,
        epochs=spec.pretraining.pretrain_epochs,
        batch_size=spec.training.batch_size,
    )
    while course.stage < len(STAGES):
        stage = STAGES[course.stage]
        settings, split = (pretraining, source) if stage == "pretrain" else (spec.training, target)
        network = build_classifier(spec.network, split.train, seed=spec.seed).to(split.train.device)
        if stage == "finetune":
            network.load_state_dict(course.pretrained)
        trainer = make_trainer(network, split.train, settings, seed=spec.seed, stream=f"batches/{split.train.name}")
        random = None
        if checkpoint is not None and checkpoint["course"]["stage"] == course.stage and checkpoint["trainer"]:
            trainer.load_state_dict(checkpoint["trainer"])
            random = checkpoint["global_random"]
        _run_stage(spec, stage, trainer, split, course, opened, random)
        weights = {key: value.clone() for key, value in trainer.tested.state_dict().items()}
        if stage == "pretrain":
            course.pretrained, course.untuned = weights, accuracy_on_test(network, target)
        elif stage == "finetune":
            course.tuned = weights
        course.stage += 1
        opened.save({"course": vars(course), "trainer": None})
    network = build_classifier(spec.network, target.train, seed=spec.seed).to(target.train.device)
    network.load_state_dict(course.tuned)
    result = TransferResult(
        spec=spec,
        network=network,
        untuned=course.untuned,
        curves=course.curves,
        n=len(target.test),
        verified=source.train.provenance.verified and target.train.provenance.verified,
        seconds=time.monotonic() - start,
        run_id=tracker.run_id,
        experiment_id=tracker.experiment_id,
        tracking_uri=tracker.uri,
    )
    if processes.rank() == 0:
        _record(result, target, tracker)
    return result


def _run_stage(
    spec: TransferSpec,
    stage: str,
    trainer: SupervisedTrainer,
    split: Split,
    course: Course,
    opened: Session,
    random: Tensor | None,
) -> None:
    """Train one stage to its end, testing after every epoch; epochs are fixed, so nothing is selected on the test."""
    label = {"pretrain": spec.domains.source, "scratch": f"{spec.domains.target}, from scratch"}.get(
        stage, f"{spec.domains.target}, fine-tuning"
    )
    curve = course.curves.setdefault(stage, [])
    with (
        opened.bar(label, trainer.settings.epochs - trainer.done) as advance,
        global_stream(spec.seed, f"training/{stage}"),
    ):
        if random is not None:
            torch.set_rng_state(random)
        for epoch in trainer.epochs():
            score = accuracy_on_test(trainer.tested, split)
            curve.append((epoch.number, score))
            values = {f"{stage}/loss": epoch.loss, f"{stage}/test_accuracy": score}
            if stage == "finetune":
                values |= activation_values(trainer.network)
            opened.tracker.log_metrics(values, epoch.number)
            opened.save(
                {"course": vars(course), "trainer": trainer.state_dict(), "global_random": torch.get_rng_state()}
            )
            advance(f"loss {epoch.loss:.3f}  test {100 * score:.1f} %  {epoch.images_per_second:.0f} images/s")


def accuracy_on_test(network: nn.Module, split: Split) -> float:
    """Share of correct answers on the test part."""
    return accuracy(predict(network, split.test), split.test.labels.cpu()).item()


def _record(result: TransferResult, target: Split, tracker: Tracker) -> None:
    spec, last = result.spec, result.spec.training.epochs
    final = spec.evaluation.final
    tracker.log_metrics({f"{final}/{setting}": estimate.mean for setting, estimate in result.rows().items()}, last)
    title = f"{spec.network.activation}, {spec.task}"
    figure = training_curve(result.curves, title=title, ylabel="test accuracy of the set at work", xlabel="epoch")
    tracker.log_figure(figure, "figures/training_curve.png")
    drawn = activation_curves(result.network, title=f"learned activations: {title}")
    if drawn is not None:
        tracker.log_figure(drawn, "figures/activation_curves.png")
    tracker.log_network(result.network, target.test)
