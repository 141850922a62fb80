"""One supervised run: restore, train, select an epoch, test, save and record, given what it is measured by."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.figure import Figure
from torch import Tensor

from arelu_meta.activations.parameters import activation_values
from arelu_meta.analysis.speed import speed_metrics
from arelu_meta.console import progress
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.splits import SUBSETS, Split
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.images import inputs_of_run
from arelu_meta.kinds.results import SupervisedResult
from arelu_meta.kinds.sections import ImageShapeSection
from arelu_meta.kinds.session import Session, open_session
from arelu_meta.kinds.supervised_spec import SupervisedSpec
from arelu_meta.pictures.figures import activation_curves, training_curve
from arelu_meta.pictures.layer_statistics import LayerLog
from arelu_meta.runtime import processes
from arelu_meta.seeding import generator_states, global_stream, restore_generators
from arelu_meta.store.tracker import Tracker
from arelu_meta.training.forward import LARGEST_BATCH, evaluation_batch, predict
from arelu_meta.training.losses import Loss, Selection, mean_loss, thinned
from arelu_meta.training.supervised import Epoch, SupervisedTrainer


@dataclass(frozen=True)
class Measure:
    """What a supervised run is trained and judged by.

    Args:
        name: of the metric, as in `validation/NAME`: accuracy, dice.
        label: the same as figures and progress bars write it.
        loss: a function of output and labels.
        score: the score of a network's output for images, the higher the better.
        result: the class of the result.
        outputs: fields of the result that come from the network's output for the test images.
        batch: most images that are answered at once.
    """

    name: str
    label: str
    loss: Loss
    score: Callable[[Tensor, ImageSet], float]
    result: type[SupervisedResult]
    outputs: Callable[[Tensor, ImageSet], dict[str, Any]]
    batch: int = LARGEST_BATCH


@dataclass(frozen=True)
class Prepared:
    """What wrong input can break, built before a run is opened: images, trainer, measure."""

    split: Split
    trainer: SupervisedTrainer
    measure: Measure

    def predict(self, images: ImageSet) -> Tensor:
        """Give the output of the network that is tested for images, in the number format of the training."""
        batch = evaluation_batch(images.device, self.trainer.batches.batch_size, most=self.measure.batch)
        return predict(self.trainer.tested, images, batch=batch, precision=self.trainer.precision)


def run_supervised(
    spec: SupervisedSpec,
    execution: Execution,
    bar: progress.Bar,
    prepared: Prepared,
    *,
    name: str,
    shape: ImageShapeSection,
    crop_pct: float = 1.0,
    tags: Mapping[str, str] | None = None,
    layers: Literal["", "drawn", "logged"] = "",
    keep_model: bool = True,
    start_metrics: Mapping[str, float] | None = None,
    start_texts: Mapping[str, str] | None = None,
    **result_fields: Any,
) -> Any:
    """Train to the end or from a checkpoint on, test the selected epoch, and store it all.

    Args:
        spec, execution, bar: what the run is, how it is carried out, and how it shows its progress.
        prepared, name, tags: images, trainer and measure of the spec; name and tags of the MLflow run.
        shape, crop_pct: how the images were brought to their shape, as is stored with the network.
        layers, keep_model: whether statistics of layers are `drawn`, or `logged` too; whether the network is stored.
        start_metrics, start_texts: metrics and texts by path that are known before training.
        result_fields: further fields of the result.

    Returns:
        A result of the measure's class.
    """
    split, images, network = prepared.split, prepared.split.train, prepared.trainer.network
    log = LayerLog(network, images, prepared.measure.loss, enabled=bool(layers), as_metrics=layers == "logged")
    with open_session(
        spec,
        execution,
        bar,
        name=name,
        tags={"device": str(images.device), "data_digest": images.digest, **(tags or {})},
        datasets={part: getattr(split, part) for part in SUBSETS if len(getattr(split, part))},
        split=split,
    ) as session:
        for path, text in (start_texts or {}).items():  # no other process but the first has a tracker
            session.tracker.log_text(text, path)
        selection = _train(spec, prepared, session, log, start_metrics or {})
        result = _test(spec, prepared, session, selection, {"stored": keep_model, **result_fields})
        if processes.rank() == 0:
            _record(result, prepared.measure, split.test, log, session.tracker)
        if processes.rank() == 0 and keep_model:
            inputs = inputs_of_run(split.test, shape, crop_pct)
            session.tracker.log_network(result.network, split.test, inputs)
        return session.described(result)


@contextmanager
def training_stage(
    session: Session, trainer: SupervisedTrainer, description: str, *, seed: int, stream: str
) -> Iterator[progress.Advance]:
    """Show the progress of a training, whose global randomness has a stream of its own or continues a checkpoint's."""
    with session.bar(description, trainer.epochs - trainer.done) as advance, global_stream(seed, stream):
        if trainer.done and session.checkpoint is not None:
            restore_generators(session.checkpoint)
        yield advance


def _train(
    spec: SupervisedSpec,
    prepared: Prepared,
    session: Session,
    layers: LayerLog,
    start_metrics: Mapping[str, float],
) -> Selection:
    """Train all epochs, scoring after each; stop early after `patience` epochs without a better score."""
    trainer, tracker, checkpoint = prepared.trainer, session.tracker, session.checkpoint
    patience, selection = spec.training.patience, Selection()
    if checkpoint is not None:
        trainer.load_state_dict(checkpoint["trainer"])
        selection = Selection(**checkpoint["selection"])
        layers.courses = checkpoint["layers"]
    with training_stage(session, trainer, "train", seed=spec.seed, stream="training") as advance:
        if checkpoint is None:
            tracker.log_metrics({**start_metrics, **layers.measure(0)}, 0)
        elif selection.out_of_patience(trainer.done, patience):  # stopped after its last epoch, and resumed
            return selection
        for epoch in trainer.train():
            values, note = _score(spec, prepared, epoch, selection)
            log_step_losses(tracker, "train", epoch, trainer.epochs)
            tracker.log_metrics(
                {**values, **activation_values(trainer.network), **layers.measure(epoch.number)}, epoch.number
            )
            session.save(
                {
                    "trainer": trainer.state_dict(),
                    "selection": vars(selection),
                    "layers": layers.courses,
                    **generator_states(),
                }
            )
            advance(f"{note}  {epoch.images_per_second:.1f} images/s")
            if selection.out_of_patience(epoch.number, patience):
                break
    return selection


def _score(
    spec: SupervisedSpec, prepared: Prepared, epoch: Epoch, selection: Selection
) -> tuple[dict[str, float], str]:
    """Score the network after an epoch, which may be chosen by it; give metrics and a note for the progress bar."""
    trainer, measure, monitored = prepared.trainer, prepared.measure, spec.evaluation.monitored
    values = {"train/loss": epoch.loss, "train/images_per_second": epoch.images_per_second}
    note, score = f"loss {epoch.loss:.3f}", None
    if measure.name == "accuracy":  # counted in the training pass itself; a Dice would be a pass of its own
        values["train/accuracy"] = epoch.accuracy
        selection.curves.setdefault("train", []).append((epoch.number, epoch.accuracy))
        note += f"  accuracy {100 * epoch.accuracy:.1f} %"
    if monitored is not None:
        images: ImageSet = getattr(prepared.split, monitored)
        output = prepared.predict(images)
        score = values[f"{monitored}/{measure.name}"] = processes.broadcast(measure.score(output, images))
        batch_size = trainer.batches.batch_size
        values[f"{monitored}/loss"] = mean_loss(measure.loss, output, images, batch_size=batch_size)
        selection.curves.setdefault(monitored, []).append((epoch.number, score))
        note += f"  {monitored} {measure.label} {100 * score:.1f} %"
    selection.update(epoch.number, score if spec.evaluation.selects else None, trainer.tested)
    return values, note


def log_step_losses(tracker: Tracker, stage: str, epoch: Epoch, epochs: int) -> None:
    """Log the training loss of an epoch's steps as `STAGE/loss_by_step`, thinned out over so many epochs."""
    steps = len(epoch.step_losses)
    for step, loss in thinned(epoch.step_losses, done=(epoch.number - 1) * steps, total=epochs * steps):
        tracker.log_metrics({f"{stage}/loss_by_step": loss}, step)


def _test(
    spec: SupervisedSpec, prepared: Prepared, session: Session, selection: Selection, fields: Mapping[str, Any]
) -> SupervisedResult:
    """Test the selected epoch, whose weights the network has afterwards."""
    network, split = prepared.trainer.tested, prepared.split
    network.load_state_dict(selection.best_state)
    outputs = prepared.measure.outputs(prepared.predict(split.test), split.test)
    return prepared.measure.result(
        spec=spec,
        network=network,
        held_out=split.held_out,
        verified=split.train.provenance.verified,
        selected_epoch=selection.epoch,
        curves=selection.curves,
        seconds=session.seconds,
        run_id=session.tracker.run_id,
        experiment_id=session.tracker.experiment_id,
        tracking_uri=session.tracker.uri,
        **outputs,
        **fields,
    )


def _record(result: SupervisedResult, measure: Measure, test: ImageSet, layers: LayerLog, tracker: Tracker) -> None:
    """Store the metrics of the test, the figures and the tables."""
    spec = result.spec
    values = {f"{spec.evaluation.final}/{name}": value for name, value in result.final_metrics().items()}
    if "validation" in result.curves:
        values[f"validation/selected_{measure.name}"] = max(score for _, score in result.curves["validation"])
    monitored = spec.evaluation.monitored
    if monitored in result.curves:
        curve = result.curves[monitored]
        best = max(score for _, score in curve)
        # What stopped early would have stayed at the network that is kept.
        curve = [*curve, *((epoch, best) for epoch in range(curve[-1][0] + 1, spec.training.epochs + 1))]
        values |= speed_metrics(f"{monitored}/{measure.name}", curve, "epochs")
    tracker.log_metrics(values, spec.training.epochs)
    title = f"{spec.network.activation} in {spec.network.backbone} on {result.goal}"
    compared: dict[str, Figure | None] = {  # side by side with those of other runs
        "figures/activation_curves.png": activation_curves(result.network, title=f"learned activations: {title}"),
        **result.figures(test, title=title),
    }
    for path, figure in compared.items():
        if figure is not None:
            tracker.log_figure(figure, path, spec.training.epochs)
    measured = layers.figure(title=f"layers over training: {title}")
    if measured is not None:
        tracker.log_figure(measured, "figures/layers.png")
    if result.curves:
        figure = training_curve(result.curves, title=title, ylabel=measure.label, xlabel="epoch")
        tracker.log_figure(figure, "figures/training_curve.png")
    for path, text in result.texts().items():
        tracker.log_text(text, path)
