"""One adaptation: features of a pretrained network, every choice made inside the given images, one look at the rest."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from arelu_meta import data
from arelu_meta.backbones.features import FeatureNetwork, feature_network
from arelu_meta.console import progress
from arelu_meta.data.inputs import Inputs
from arelu_meta.data.splits import SUBSETS
from arelu_meta.errors import InputError
from arelu_meta.kinds.adapt.choosing import Choice, Support, best_of, choose_strength, footprint, stratified_folds
from arelu_meta.kinds.adapt.recording import record_adaptation, view_key
from arelu_meta.kinds.adapt.result import AdaptResult, DrawOutcome
from arelu_meta.kinds.adapt.spec import FROZEN, TUNED, AdaptSpec
from arelu_meta.kinds.adapt.supports import Draw, Draws, draw_supports
from arelu_meta.kinds.adapt.tuning import Tuner
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.images import reader_options
from arelu_meta.kinds.session import Session, machine, open_session
from arelu_meta.pretrained.assembly import check_memory, fit_to_inputs, load_network, noise, with_statistics
from arelu_meta.pretrained.feature_cache import CachedGraph, cached_features
from arelu_meta.pretrained.networks import find_model, published_size
from arelu_meta.pretrained.weights import Weights, check_named_file
from arelu_meta.runtime.hardware import available_memory, threads
from arelu_meta.store.support import StoredSupport


@dataclass(frozen=True, eq=False)
class PreparedAdaptation:
    """What wrong input can break, built before a run is opened: images, draws, network, what it takes."""

    drawn: Draws
    network: FeatureNetwork
    inputs: Inputs
    weights: Weights


def run_adapt(spec: AdaptSpec, execution: Execution, bar: progress.Bar) -> AdaptResult:
    """Fit and test; everything that wrong input can break is built before a run is opened in the store."""
    with machine(execution) as device:
        prepared = prepare(spec, root=execution.data_root or None)
        drawn, split = prepared.drawn, prepared.drawn.split()
        with open_session(
            spec,
            execution,
            bar,
            name=f"adapt-{spec.network.model}-{drawn.images.name}-seed{spec.seed}",
            tags={
                "device": str(device),
                "data_digest": drawn.images.digest,
                "weights_digest": prepared.weights.digest if prepared.weights.state else "none",
                "inputs": str(prepared.inputs),
            },
            datasets={part: getattr(split, part) for part in SUBSETS if len(getattr(split, part))},
            split=split,
        ) as session:
            records = _records(session, drawn.images.digest)
            features, computed, key = cached_features(
                prepared.network,
                drawn.images,
                prepared.inputs,
                name=(spec.network.model, spec.network.model_options),
                device=device,
                bar=session.bar,
            )
            if (features == features[0]).all():
                raise InputError(
                    f"all images have the same features of {spec.network.model}; check its weights and the images"
                )
            support = _support(spec, prepared, features, device)
            _evaluate(spec, drawn, support, records, session)
            alone = MLFLOW_PARENT_RUN_ID not in execution.tags  # a comparison has a view of its own
            view = view_key(spec) if alone else ""
            result = replace(_result(spec, prepared, support, records, session, computed), view=view)
            record_adaptation(result, session.tracker)
            fitted = fit_to_inputs(drawn.images.subset(torch.arange(2)), prepared.inputs, resize=spec.input.resize)
            frozen = result.choice.method in FROZEN
            session.tracker.log_network(
                result.network,
                fitted,
                prepared.inputs,
                _writes_support(support.part(drawn.draws[0].support), result),
                CachedGraph(key, result.network.get_submodule("head")) if frozen else None,
            )
            return session.described(result)


def _writes_support(support: Support, result: AdaptResult) -> Callable[[Path], None] | None:
    """Give what writes the features beside a model whose network did not move."""
    choice = result.choice
    if choice.method not in FROZEN:
        return None
    return StoredSupport(support.features, support.labels, choice.method, str(choice.strength)).write


def prepare(spec: AdaptSpec, *, root: str | None = None) -> PreparedAdaptation:
    """Read the images at the size the network takes, draw what is learned from, and build the network."""
    section, given = spec.network, spec.input
    model = find_model(section.model)  # names first: images may take minutes to read
    check_named_file(section.weights)
    side = published_size(model, section.weights)
    options = reader_options(spec.data.dataset, spec.data.dataset_options, given, side=side, all_squares=True)
    drawn = draw_supports(data.load(spec.data.dataset, root=root, **options), spec.data)
    _check_folds(drawn, spec.methods.folds)
    network, weights, sized = load_network(
        section.model,
        section.weights,
        section.model_options,
        drawn.images,
        head=section.head,
        channels=given.channels,
        image_size=given.image_size,
        seed=spec.seed,
    )
    inputs, of_target = with_statistics(sized, normalise=given.normalise, mean=given.mean, std=given.std)
    if of_target:  # of the first draw, so that all draws share their features
        learned = fit_to_inputs(drawn.images.subset(drawn.draws[0].support), inputs, resize=given.resize)
        mean, std = learned.channel_statistics()
        inputs = replace(inputs, mean=mean, std=tuple(max(deviation, 1e-6) for deviation in std))
    found = feature_network(network.eval().requires_grad_(False), noise(inputs, 2), head=section.head)
    if set(spec.methods.arms) & set(TUNED):
        check_memory(len(drawn.images), inputs, memory=available_memory())
    for method in {"activation", "lora"} & set(spec.methods.arms):  # for their errors
        Tuner(found.eval(), spec.methods.activation, spec.methods.epochs, spec.seed).start(method, noise(inputs, 2))
    read = drawn.images.provenance
    inputs = replace(inputs, resize=given.resize, read_size=read.read_size, read_resize=read.read_resize)
    return PreparedAdaptation(drawn, found.eval(), inputs, weights)


def _check_folds(drawn: Draws, folds: int) -> None:
    """Refuse a class with fewer images than the choices need."""
    counts = torch.stack([torch.bincount(drawn.images.labels[draw.support]) for draw in drawn.draws]).amin(0)
    name, fewest = drawn.images.class_names[int(counts.argmin())], int(counts.min())
    if fewest < 2 or (fewest < 3 and not drawn.held_out):
        needed = 2 if drawn.held_out else 3
        raise InputError(
            f"class {name!r} has {fewest} image(s) to learn from; choices need {needed} at least, add some"
        )
    if not drawn.held_out and fewest >= folds and fewest - -(-fewest // folds) < 2:  # what is left of a class in a fold
        raise InputError(
            f"class {name!r} has {fewest} images, of which `folds` {folds} leaves one to learn from in a fold; set "
            f"`folds={fewest}`, or add images"
        )
    if fewest < folds:
        raise InputError(
            f"class {name!r} has {fewest} images to learn from, fewer than `folds` {folds}; set `folds={fewest}`, or "
            "add images"
        )


def _splits(drawn: Draws, draw: Draw, spec: AdaptSpec, number: int) -> list[Draw]:
    """What is fitted and answered in a draw: first what the model is made of, then, with none held out, the folds."""
    splits = [draw]
    if not drawn.held_out:
        labels = drawn.images.labels[draw.support]
        parts = stratified_folds(labels, spec.methods.folds, seed=spec.seed, stream=f"outer folds/{number}")
        splits += [Draw(draw.support[fitted], draw.support[held]) for fitted, held in parts]
    return splits


def _records(session: Session, digest: str) -> list[dict[str, Any]]:
    """Answers up to the checkpoint, if it is of these images: a folder of the same name may hold others by now."""
    checkpoint = session.checkpoint
    records: list[dict[str, Any]] = []
    if checkpoint is not None and checkpoint.get("images") == digest:
        records = checkpoint["records"]
    session.save({"records": records, "images": digest})
    return records


def _support(spec: AdaptSpec, prepared: PreparedAdaptation, features: Tensor, device: torch.device) -> Support:
    """Give what methods are fitted to: features, and images where the network is to move."""
    images = prepared.drawn.images
    whole = Support(features, images.labels.cpu(), len(images.class_names))
    if not set(spec.methods.arms) & set(TUNED):
        return whole
    fitted = fit_to_inputs(images, prepared.inputs, resize=spec.input.resize).to(device)
    tuner = Tuner(prepared.network.to(device), spec.methods.activation, spec.methods.epochs, spec.seed)
    return replace(whole, images=fitted, tuner=tuner)


def _evaluate(spec: AdaptSpec, drawn: Draws, whole: Support, records: list[dict[str, Any]], session: Session) -> None:
    """Choose the strength of every method in every draw, fit it, and answer what is held out; adds to `records`."""
    units = [
        (number, position, split, method)
        for number, draw in enumerate(drawn.draws)
        for position, split in enumerate(_splits(drawn, draw, spec, number))
        for method in spec.methods.arms
    ]
    with session.bar("choose and test", len(units) - len(records)) as advance:
        for number, position, split, method in units[len(records) :]:
            support = whole.part(split.support)
            folds = min(spec.methods.folds, int(torch.bincount(support.labels).min()))
            stream = f"folds/{number}/{position}"
            # Products of a few hundred numbers: threads would wait for each other longer than they compute.
            few = 1 if method in FROZEN else 0
            with threads(few), threadpool_limits(few or None):
                choice = choose_strength(method, support, folds, seed=spec.seed, stream=stream)
                logits, cost = torch.zeros(0, support.classes), None
                if len(split.test) or few:
                    fitted = choice.fit(support)
                    cost = footprint(fitted)
                if len(split.test):
                    logits = whole.part(split.test).answers(fitted)
            records.append(
                {
                    "draw": number,
                    "split": position,
                    "numbers": split.test,
                    "logits": logits,
                    "choice": vars(choice),
                    "footprint": cost,
                }
            )
            session.save({"records": records, "images": drawn.images.digest})
            advance(f"{method} {choice.strength}: {100 * choice.accuracy:.1f} % cross-validated")


def _result(
    spec: AdaptSpec,
    prepared: PreparedAdaptation,
    whole: Support,
    records: list[dict[str, Any]],
    session: Session,
    computed: int,
) -> AdaptResult:
    """Fit what was chosen in the first draw, and put all answers together."""
    drawn, tracker, features = prepared.drawn, session.tracker, whole.features
    final = best_of([Choice(**record["choice"]) for record in records if (record["draw"], record["split"]) == (0, 0)])
    support = whole.part(drawn.draws[0].support)
    fitted = final.fit(support)
    if final.method in FROZEN:
        fitted = nn.Sequential(OrderedDict(features=prepared.network, head=fitted))
    return AdaptResult(
        spec=spec,
        network=fitted.cpu().eval(),
        verified=drawn.images.provenance.verified,
        run_id=tracker.run_id,
        experiment_id=tracker.experiment_id,
        tracking_uri=tracker.uri,
        class_names=drawn.images.class_names,
        held_out=drawn.held_out,
        draws=[_outcome(drawn, number, records) for number in range(len(drawn.draws))],
        choice=final,
        support_size=len(support.labels),
        feature_count=features.shape[1],
        computed=(computed, len(features)),
        seconds=session.seconds,
    )


def _outcome(drawn: Draws, number: int, records: list[dict[str, Any]]) -> DrawOutcome:
    """Put the answers of a draw together: of every method, and of the one that was chosen in each split."""
    mine = [record for record in records if record["draw"] == number]
    positions = sorted({record["split"] for record in mine} - (set() if drawn.held_out else {0}))
    of_method: dict[str, list[Tensor]] = {}
    selected, numbers = [], []
    for position in positions:
        split = [record for record in mine if record["split"] == position]
        best = best_of([Choice(**record["choice"]) for record in split])
        numbers.append(split[0]["numbers"])
        for record in split:
            of_method.setdefault(record["choice"]["method"], []).append(record["logits"])
            if record["choice"]["method"] == best.method:
                selected.append(record["logits"])
    return DrawOutcome(
        labels=drawn.images.labels[torch.cat(numbers)].cpu().numpy(),
        answers={method: torch.cat(logits).argmax(1).numpy() for method, logits in of_method.items()},
        selected=torch.cat(selected).argmax(1).numpy(),
        choices={record["choice"]["method"]: Choice(**record["choice"]) for record in mine if record["split"] == 0},
        footprints={
            record["choice"]["method"]: record["footprint"] for record in reversed(mine) if record.get("footprint")
        },
    )
