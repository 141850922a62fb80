"""One few-shot run: data, network, learner, loops, checkpoints and tracking wired together."""

import copy
import csv
import io
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from arelu_meta import learners
from arelu_meta.activations.parameters import activation_values
from arelu_meta.analysis.speed import speed_metrics
from arelu_meta.backbones import side_for
from arelu_meta.console import progress
from arelu_meta.data.episodes import Episode, EpisodeSampler
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kernels.recorded_step import RECORD_AFTER
from arelu_meta.kinds.execution import EpisodeExecution
from arelu_meta.kinds.few_shot.checkpoint import MetaTraining, checkpoint_of, restored
from arelu_meta.kinds.few_shot.measures import MSE
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.few_shot.pretrained_network import load_pretrained
from arelu_meta.kinds.few_shot.result import FewShotResult
from arelu_meta.kinds.few_shot.settings import LearnerSettings, build_learner
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.images import inputs_of_run, load_split
from arelu_meta.kinds.networks import check_forward, check_logits, check_vectors
from arelu_meta.kinds.results import name_of
from arelu_meta.kinds.session import Session, machine, open_session, to_device
from arelu_meta.learners.gradient_learner import GradientLearner
from arelu_meta.learners.learner import Learner
from arelu_meta.pictures.adapted_curves import adapted_curves
from arelu_meta.pictures.figures import activation_curves, training_curve
from arelu_meta.pretrained.assembly import Assembled
from arelu_meta.runtime import processes
from arelu_meta.runtime.hardware import available_memory
from arelu_meta.seeding import generator, global_stream, restore_generators
from arelu_meta.store.tracker import Tracker
from arelu_meta.training.meta import evaluate, make_optimizer, meta_train, validate

CURVES = 6  # test functions that are drawn


def run_few_shot(spec: FewShotSpec, execution: EpisodeExecution, bar: progress.Bar) -> FewShotResult:
    """Train and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        split, made = _load(spec, execution.data_root, bar)
        split = to_device(split, device, execution)
        images, episode, samplers = split.train, spec.episode, _samplers(spec, split)
        learner = build_learner(
            spec,
            images.channels,
            images.image_size,
            network=made.network if made else None,
            images=images,
            chunk=execution.chunk,
            device=device,
        )
        check_logits(learner.network, images, (episode.ways,), spec.network.backbone)
        if not isinstance(learner, GradientLearner):  # which leave the network's buffers alone
            check_forward(learner.network, images.pixels(torch.arange(2, device=device)))
        learner.prepare(samplers["train"].sample(2, generator(0, "episodes/prepare")))
        learner.observe(images)
        if execution.record_steps:
            long = spec.training.iterations >= 2 * RECORD_AFTER  # recording pays, so it is done at once
            learner.record_steps(**({"after": 0} if long else {}))
        with open_session(
            spec,
            execution,
            bar,
            name=f"{spec.network.activation}-{name_of(spec.task, spec.data.dataset)}-"
            f"{episode.ways}w{episode.shots}s-seed{spec.seed}",
            tags={
                "device": str(device),
                "data_digest": images.digest,
                "transductive": str(learner.transductive),
                **({"one_by_one": note} if (note := learner.note) else {}),
                **({"weights_digest": made.weights.digest} if made and made.weights.state else {}),
            },
            datasets={part: getattr(split, part) for part in samplers},
            split=split,
        ) as session:
            return _train_and_test(spec, learner, samplers, split, session)


def _load(spec: FewShotSpec, data_root: str, bar: progress.Bar) -> tuple[Split, Assembled | None]:
    """Read and divide the images, and refuse a loss or a network that they do not fit; with a pretrained network."""
    paper = spec.evaluation.protocol == "paper"  # nothing is selected, so all that is not tested trains
    made, root, section = None, data_root or None, spec.class_counts()
    if spec.network.is_pretrained:
        split, made = load_pretrained(spec, section, root=root, train_on_validation=paper, bar=bar)
    else:
        side = side_for(spec.network.backbone)
        split = load_split(
            section, root=root, shape=spec.fit, train_on_validation=paper, real_targets=True, bar=bar, side=side
        )
    name, targets = split.train.name, split.train.targets
    if spec.measure is MSE and targets is None:
        raise InputError(f"{name} has classes and no real targets; leave `loss` mse out")
    if spec.measure is not MSE and targets is not None:
        raise InputError(f"{name} has real targets, one function a class; set `loss` to mse and `ways` to 1")
    check_vectors(spec.network.backbone, split.train)
    return split, made


def _samplers(spec: FewShotSpec, split: Split) -> dict[str, EpisodeSampler]:
    """Draw the episodes of each part; under the paper's protocol there is nothing to validate on."""
    episode = spec.episode
    sizes = {"train": {"ways": episode.train_ways or episode.ways, "queries": spec.train_queries}}
    for part in ("test",) if spec.evaluation.protocol == "paper" else ("validation", "test"):
        sizes[part] = {"ways": episode.ways, "queries": episode.test_queries}
    samplers = {part: EpisodeSampler(getattr(split, part), shots=episode.shots, **size) for part, size in sizes.items()}
    _check_memory(spec, samplers)
    return samplers


def _check_memory(spec: FewShotSpec, samplers: Mapping[str, EpisodeSampler]) -> None:
    """Refuse more episodes than go into memory: those of a step with their pixels, those that are fixed as numbers."""
    counts = {
        "meta_batch": ("train", spec.training.meta_batch, 4 * samplers["train"].images.images[0].numel()),
        "validation_episodes": ("validation", spec.evaluation.validation_episodes, 8),
        "test_episodes": ("test", spec.evaluation.test_episodes, 8),
    }
    for name, (part, count, size) in counts.items():
        sampler = samplers.get(part)
        needed = count * size * sampler.ways * (sampler.shots + sampler.queries) if sampler else 0
        if needed > available_memory():
            raise InputError(f"`{name}` {count} takes {needed >> 30} GiB, more than this machine has; lower it")


def _train_and_test(
    spec: FewShotSpec, learner: Learner, samplers: dict[str, EpisodeSampler], split: Split, session: Session
) -> FewShotResult:
    sizes = {"validation": spec.evaluation.validation_episodes, "test": spec.evaluation.test_episodes}
    seed = spec.data.split_seed  # the same for every run seed and every arm, so that episodes can be paired
    fixed = {
        part: samplers[part].draw(size, generator(seed, f"episodes/{part}"))
        for part, size in sizes.items()
        if part in samplers
    }
    training = MetaTraining()
    if learners.entry(spec.training.method).needs_training:
        training = _train(spec, learner, samplers, fixed.get("validation"), session)
    chosen = ""
    if "validation" in fixed:
        learner.network.eval()
        chosen = learner.choose(samplers["validation"].episodes(part) for part in fixed["validation"].split(32))
    train_seconds = session.seconds
    scores = _test(spec, learner, samplers["test"], fixed["test"], session)
    result = FewShotResult(
        spec=spec,
        network=learner.network,
        episodes=scores.numpy(),
        vectors=split.train.is_vectors,
        held_out=split.held_out,
        verified=split.train.provenance.verified,
        transductive=learner.transductive,
        note=learner.note,
        curves=training.curves,
        selected_iteration=training.selected,
        chosen=chosen,
        best_batch_accuracy=max((accuracy for _, accuracy in training.curves["train"]), default=float("nan")),
        train_seconds=train_seconds,
        test_seconds=session.seconds - train_seconds,
        recording_seconds=learner.recording_seconds,
        run_id=session.tracker.run_id,
        experiment_id=session.tracker.experiment_id,
        tracking_uri=session.tracker.uri,
    )
    if processes.rank() == 0:
        _record(result, learner, split, training, session.tracker)
        if isinstance(learner, GradientLearner) and split.train.targets is not None and split.train.channels == 1:
            shown = samplers["test"].episodes(fixed["test"][:CURVES])
            title = f"{spec.training.method} with {spec.network.activation}: test functions of {spec.task}"
            figure = adapted_curves(learner, shown, title=title)
            session.tracker.log_figure(figure, "figures/adapted_curves.png", spec.training.iterations)
    return session.described(result)


def _test(spec: FewShotSpec, learner: Learner, sampler: EpisodeSampler, numbers: Tensor, session: Session) -> Tensor:
    """Score the test episodes at every step, (episodes, steps + 1): in parts, to show how far it is."""
    parts, scores, measure = numbers.split(60), list[Tensor](), spec.measure
    with session.bar("test", len(parts)) as advance:
        for part in parts:
            scores.append(evaluate(learner, sampler, part, check=not scores, precision=spec.training.precision))
            advance(f"{measure.name} {measure.text(torch.cat(scores)[:, -1].mean().item())}")
    return torch.cat(scores)


def _train(
    spec: FewShotSpec,
    learner: Learner,
    samplers: dict[str, EpisodeSampler],
    validation: Tensor | None,
    session: Session,
) -> MetaTraining:
    """Run the outer loop; under the sound protocol, end with the parameters that validate best."""
    state, training = learner.state(), MetaTraining()
    optimizer = make_optimizer(learner, spec.training.outer_lr)
    random = generator(spec.seed, "episodes/train")
    next_episodes = _training_episodes(spec, samplers["train"], random)
    checkpoint, measure = session.checkpoint, spec.measure
    if checkpoint is not None:
        training = restored(checkpoint, learner, optimizer, random)
    iterations = spec.training.iterations
    with session.bar("meta-train", iterations - training.done) as advance, global_stream(spec.seed, "training"):
        if checkpoint is not None:
            restore_generators(checkpoint)
        for step in meta_train(
            learner,
            optimizer,
            next_episodes,
            iterations=iterations,
            done=training.done,
            halve_lr_every=spec.training.halve_lr_every,
            outer_clip=spec.training.outer_clip,
            precision=spec.training.precision,
        ):
            values = {**step.metrics(measure.name), **activation_values(learner.network)}
            training.done = step.number
            training.curves["train"].append((step.number, step.accuracy))
            due = step.number % spec.evaluation.validate_every == 0 or step.number == iterations
            if due and validation is not None:
                score = values[f"validation/{measure.name}"] = validate(
                    learner, samplers["validation"], validation, precision=spec.training.precision
                )
                training.curves.setdefault("validation", []).append((step.number, score))
                if measure.better(score, than=training.best):
                    training.best, training.selected = score, step.number
                    training.best_state = copy.deepcopy(state.state_dict())
            session.tracker.log_metrics(values, step.number)
            if due:
                session.save(checkpoint_of(training, state, optimizer, random))
            advance(f"loss {step.loss:.3f}  {measure.name} {measure.text(step.accuracy)}")
    if validation is not None:
        state.load_state_dict(training.best_state)
    else:
        training.selected = iterations
    return training


def _training_episodes(spec: FewShotSpec, sampler: EpisodeSampler, random: torch.Generator) -> Callable[[], Episode]:
    """Fresh episodes every time; under the paper's protocol, draws from a pool of fixed ones."""
    batch = spec.training.meta_batch
    if spec.evaluation.protocol == "sound":
        return lambda: sampler.episodes(sampler.draw(batch, random))
    pool = sampler.draw(spec.evaluation.task_pool, random)
    return lambda: sampler.episodes(pool[torch.randint(len(pool), (batch,), generator=random)])


def _record(result: FewShotResult, learner: Learner, split: Split, training: MetaTraining, tracker: Tracker) -> None:
    """Store the final metrics, the score of every test episode, the figures and the model."""
    spec, last, test = result.spec, result.spec.training.iterations, result.test
    name = spec.measure.name
    values = {f"test/{name}": test.mean, "test/n": test.n}
    values |= {f"test/{name}_ci95_low": test.low, f"test/{name}_ci95_high": test.high}
    values |= {"train/seconds": result.train_seconds, "test/seconds": result.test_seconds}
    if result.recording_seconds:
        values["train/recording_seconds"] = result.recording_seconds
    if spec.evaluation.protocol == "paper":
        values["paper/best_batch_accuracy"] = result.best_batch_accuracy
    if training.done and spec.measure is not MSE:
        values["train/collapsed"] = float(result.collapsed)
    if result.collapsed:
        tracker.set_tags({"collapsed": "True"})
    by_step = [(step, estimate.mean) for step, estimate in enumerate(result.by_step)]
    if spec.measure is MSE:
        values |= {f"test/mse_step_{step}": error for step, error in by_step}
    elif len(by_step) > 1:
        values |= speed_metrics("test/accuracy", by_step, "steps")
    tracker.log_metrics(values, last)
    for step, score in by_step:
        tracker.log_metrics({f"test/{name}_by_inner_step": score}, step)
    # One row per test episode, in the fixed order, so that two runs can be compared pair by pair.
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["episode", *(f"step_{step}" for step in range(result.episodes.shape[1]))])
    writer.writerows([number, *(f"{value:.6f}" for value in row)] for number, row in enumerate(result.episodes))
    tracker.log_text(table.getvalue(), "test_episodes.csv")
    title = f"{spec.network.activation} on {spec.task}, {spec.problem}"
    if training.done:
        tracker.log_figure(
            training_curve(training.curves, title=title, ylabel=spec.measure.label), "figures/training_curve.png"
        )
    curves = activation_curves(result.network, title=f"learned activations: {title}")
    if curves is not None:
        tracker.log_figure(curves, "figures/activation_curves.png", last)
    inputs = inputs_of_run(split.train, spec.fit)
    with tempfile.TemporaryDirectory() as folder:
        FewShotModel(LearnerSettings.of(spec), learner, inputs).save(Path(folder) / "model")
        tracker.log_few_shot_model(Path(folder) / "model")
