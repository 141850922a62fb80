"""Several seeds of one setting, each a run of its own; one after the other, or trained together."""

import time
from collections.abc import Mapping

from arelu_meta.console import progress
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError
from arelu_meta.kinds.classify.run import Prepared, prepare, run_classify
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.execution import TrainingExecution, seed_numbers
from arelu_meta.kinds.sections import Spec
from arelu_meta.kinds.seeds_result import SeedScore, SeedsResult
from arelu_meta.kinds.segment.run import run_segment
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.kinds.session import machine
from arelu_meta.runtime import processes
from arelu_meta.seeding import global_stream
from arelu_meta.store.connection import finished_metrics, store_uri
from arelu_meta.training.stacked import Replayed, StackedTrainer


def run_seeds(spec: Spec, execution: TrainingExecution, bar: progress.Bar = progress.silent) -> SeedsResult:
    """Run every seed of `execution.seeds` that is not finished in the store, and collect all of them."""
    if not isinstance(spec, ClassifySpec | SegmentSpec):
        raise InputError(f"several seeds in one command are for classify and segment, not for a {type(spec).__name__}")
    start, seeds = time.monotonic(), seed_numbers(execution.seeds)
    if spec.seed:
        raise InputError(f"--seed {spec.seed} and --seeds {execution.seeds} both name seeds; drop one of them")
    if processes.launched():
        raise InputError("--seeds runs one seed after the other in one process; start it without torchrun")
    if execution.together and isinstance(spec, SegmentSpec):
        raise InputError("--together is for classifiers; drop it to segment one seed after the other")
    specs = {seed: spec.model_copy(update={"seed": seed}) for seed in seeds}
    scores = {seed: found for seed, each in specs.items() if (found := _finished(each, execution)) is not None}
    left = {seed: each for seed, each in specs.items() if seed not in scores}
    if isinstance(spec, SegmentSpec):
        for seed, each in left.items():
            segmented = run_segment(each, execution, bar)  # type: ignore[arg-type]  # all are of one kind
            scores[seed] = SeedScore(seed, segmented.dice, segmented.run_id, found=False)
    elif left:
        scores |= _classified(left, execution, bar)  # type: ignore[arg-type]  # all are of one kind
    measure = "Dice" if isinstance(spec, SegmentSpec) else "accuracy"
    ordered = [scores[seed] for seed in seeds]
    return SeedsResult(spec, measure, ordered, time.monotonic() - start, store_uri())


def _finished(spec: ClassifySpec | SegmentSpec, execution: TrainingExecution) -> SeedScore | None:
    """The score of this very run, if the store has it."""
    found = finished_metrics(spec, experiment=execution.experiment)
    name = "dice" if isinstance(spec, SegmentSpec) else "accuracy"
    prefix = spec.evaluation.final
    if found is None or f"{prefix}/{name}" not in found[1]:
        return None
    return SeedScore(spec.seed, found[1][f"{prefix}/{name}"], found[0], found=True)


def _classified(
    specs: Mapping[int, ClassifySpec], execution: TrainingExecution, bar: progress.Bar
) -> dict[int, SeedScore]:
    """Run all; the images are read once."""
    scores: dict[int, SeedScore] = {}
    split: Split | None = None
    with machine(execution) as device:
        prepared: dict[int, Prepared] = {}
        for seed, spec in specs.items():
            prepared[seed] = prepare(spec, execution, device, split=split)
            split = prepared[seed][0]
    if execution.together:
        prepared = _trained_together(specs, prepared, bar)
    for seed, spec in specs.items():
        result = run_classify(spec, execution, bar, prepared=prepared.pop(seed))
        scores[seed] = SeedScore(seed, result.test.mean, result.run_id, found=False)
    return scores


def _trained_together(
    specs: Mapping[int, ClassifySpec], prepared: Mapping[int, Prepared], bar: progress.Bar
) -> dict[int, Prepared]:
    """Train all seeds as one; what comes back gives each seed's epochs again, to be scored and recorded as ever."""
    stacked = StackedTrainer([trainer for _, trainer in prepared.values()])
    past: list[list] = [[] for _ in prepared]
    first = next(iter(specs.values()))
    with bar(f"train {len(specs)} seeds", first.training.epochs) as advance, global_stream(first.seed, "training"):
        for epochs in stacked.epochs():
            for one, epoch in zip(past, epochs, strict=True):
                one.append(epoch)
            loss = sum(epoch.loss for epoch, _ in epochs) / len(epochs)
            advance(f"mean loss {loss:.3f}  {epochs[0][0].images_per_second:.0f} images/s")
    return {
        seed: (split, Replayed(trainer, one))
        for (seed, (split, trainer)), one in zip(prepared.items(), past, strict=True)
    }
