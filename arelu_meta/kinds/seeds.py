"""Several seeds of one setting, each a run of its own; one after the other, or trained together."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from arelu_meta import kinds
from arelu_meta.analysis.estimates import Estimate, mean_interval
from arelu_meta.console import progress
from arelu_meta.console.output import plain
from arelu_meta.console.tables import text_table
from arelu_meta.data.splits import Split
from arelu_meta.errors import InputError, without_password
from arelu_meta.kinds.execution import TrainingExecution, seed_numbers
from arelu_meta.kinds.results import block, estimate_values, trained_on, unusual_rows
from arelu_meta.kinds.sections import Spec
from arelu_meta.kinds.session import machine
from arelu_meta.kinds.supervised import Prepared
from arelu_meta.kinds.supervised_spec import SupervisedSpec
from arelu_meta.registry import load_attribute
from arelu_meta.runtime import processes
from arelu_meta.seeding import global_stream
from arelu_meta.store.connection import finished_metrics
from arelu_meta.store.sources import store_uri
from arelu_meta.training.stacked import ReplayedTrainer, Snapshot, StackedTrainer
from arelu_meta.training.supervised import Epoch


@dataclass(frozen=True)
class SeedScore:
    """One seed's test score, its MLflow run, and whether that run had been finished before."""

    seed: int
    score: float
    run_id: str
    finished_before: bool


@dataclass(frozen=True)
class SeedsResult:
    """The test scores of one setting by seed: accuracies, or Dice coefficients."""

    spec: SupervisedSpec
    seeds: list[SeedScore]
    seconds: float
    tracking_uri: str
    stored: bool = True
    """whether the networks are in the store, so that they answer new images"""

    @property
    def test(self) -> Estimate | None:
        """Mean with the 95 % interval over seeds; None for a single one."""
        scores = [each.score for each in self.seeds]
        return mean_interval(scores) if len(scores) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Everything for a script, as plain values for JSON: the score over seeds, and every seed's score and run."""
        metric = f"{self.spec.evaluation.final}/{self.spec.measure}"
        mean = self.test or Estimate(self.seeds[0].score, math.nan, math.nan, 1)
        return {
            "kind": self.spec.kind,
            "task": self.spec.task,
            "metrics": {metric: estimate_values(mean)},
            "seeds": [plain(each) for each in self.seeds],
            "seconds": self.seconds,
            "tracking_uri": without_password(self.tracking_uri),
            "settings": plain(self.spec.model_dump(mode="json", exclude={"seed"})),
        }

    def report(self) -> str:
        """Say what was run, the mean over seeds, and every seed's score and run."""
        spec, measure = self.spec, "Dice" if self.spec.measure == "dice" else self.spec.measure
        label = f"best test epoch, {measure}" if spec.evaluation.final != "test" else f"test {measure}"
        shown = f"{100 * self.seeds[0].score:.2f} % (n = 1, no interval)"
        if self.test is not None:
            shown = f"{self.test.percent()}, 95 % interval over seeds"
        rows = [(label, shown), *unusual_rows(spec)]
        before = sum(each.finished_before for each in self.seeds)
        if before:
            rows.append(("not repeated", f"{before} of {len(self.seeds)} runs were finished before"))
        uri = without_password(self.tracking_uri)
        rows += [("time", f"{self.seconds:.1f} s"), ("MLflow", uri)]
        rows += [] if uri.startswith("http") else [("look at it", f"mlflow ui --backend-store-uri {uri}")]
        images = "IMAGES... --output DIR" if spec.measure == "dice" else "IMAGES..."
        rows += [("use one", f"python -m arelu_meta.predict {self.seeds[0].run_id} {images}")] if self.stored else []
        title = (
            f"{spec.network.activation} in {spec.network.backbone}: {trained_on(spec.task, spec.data.dataset)}, "
            f"{spec.training.optimizer} lr {spec.training.lr:g}, protocol {spec.evaluation.protocol}, "
            f"{len(self.seeds)} seeds"
        )
        table = [
            (str(each.seed), f"{100 * each.score:.2f}", each.run_id, "finished before" if each.finished_before else "")
            for each in self.seeds
        ]
        return f"{block(title, rows)}\n\n{text_table(('seed', f'{measure} %', 'MLflow run', ''), table)}"


def run_seeds(spec: Spec, execution: TrainingExecution, bar: progress.Bar = progress.silent) -> SeedsResult:
    """Run every seed of `execution.seeds` that is not finished in the store, and collect all of them.

    Args:
        spec: the setting; its own seed must be 0, for `execution.seeds` names the seeds.
        execution: how the runs are carried out; with `together`, all seeds are trained as one stacked network.
        bar: shows the progress.

    Returns:
        The score of every seed, and their mean with an interval.

    Raises:
        InputError: the kind of run has no such setting, or settings do not go together.
    """
    start, seeds, kind = time.monotonic(), seed_numbers(execution.seeds), kinds.entry(spec.kind)
    if not kind.prepare:
        able = " and ".join(name for name in kinds.names() if kinds.entry(name).prepare)
        raise InputError(f"several seeds in one command are for {able}, not for {spec.kind}")
    if spec.seed:
        raise InputError(f"`seed={spec.seed}` and `seeds={execution.seeds}` both name seeds; drop one of them")
    if processes.launched():
        raise InputError("`seeds` runs one seed after the other in one process; start it without torchrun")
    if execution.together and not kind.stackable:
        raise InputError("`together` is for classifiers; drop it to run one seed after the other")
    supervised = cast("SupervisedSpec", spec)
    specs = {seed: supervised.model_copy(update={"seed": seed}) for seed in seeds}
    scores: dict[int, SeedScore] = {}
    for seed, each in specs.items():
        stored = finished_metrics(each, experiment=execution.experiment)
        metric = f"{supervised.evaluation.final}/{supervised.measure}"
        if stored is not None and metric in stored[1]:
            scores[seed] = SeedScore(seed, stored[1][metric], stored[0], finished_before=True)
    left = {seed: each for seed, each in specs.items() if seed not in scores}
    if left:
        scores |= _run_left(left, execution, bar)
    ordered, seconds = [scores[seed] for seed in seeds], time.monotonic() - start
    return SeedsResult(supervised, ordered, seconds, store_uri(), stored=execution.keep_model)


def _run_left(
    specs: Mapping[int, SupervisedSpec], execution: TrainingExecution, bar: progress.Bar
) -> dict[int, SeedScore]:
    """Run all; the images are read once. Networks are built one at a time, unless they are trained together."""
    first = next(iter(specs.values()))
    kind = kinds.entry(first.kind)
    run, prepare = kind.load(), load_attribute(kind.prepare)
    scores: dict[int, SeedScore] = {}
    split: Split | None = None
    together: dict[int, Prepared] = {}
    with machine(execution) as device:
        for seed, spec in specs.items() if execution.together else ():
            together[seed] = prepare(spec, execution, device, split=split, bar=bar)
            split = together[seed].split
        if together:
            together = _train_together(together, first, bar)
        for seed, spec in specs.items():
            prepared = together.pop(seed) if together else prepare(spec, execution, device, split=split, bar=bar)
            split = prepared.split
            result = run(spec, execution, _named_bar(bar, f"seed {seed}"), prepared=prepared)
            scores[seed] = SeedScore(seed, result.score, result.run_id, finished_before=False)
            del prepared, result  # the network, before the next is built
    return scores


def _named_bar(bar: progress.Bar, name: str) -> progress.Bar:
    """Put a name before what a bar shows."""
    return lambda description, total: bar(f"{name}, {description}", total)


def _train_together(prepared: Mapping[int, Prepared], first: SupervisedSpec, bar: progress.Bar) -> dict[int, Prepared]:
    """Train all seeds as one; what comes back gives each seed's epochs again, to be scored and recorded as ever."""
    stacked = StackedTrainer([each.trainer for each in prepared.values()])
    past: list[list[tuple[Epoch, Snapshot]]] = [[] for _ in prepared]
    with bar(f"train {len(prepared)} seeds", first.training.epochs) as advance, global_stream(first.seed, "training"):
        for epochs in stacked.train():
            for of_seed, epoch in zip(past, epochs, strict=True):
                of_seed.append(epoch)
            loss = sum(epoch.loss for epoch, _ in epochs) / len(epochs)
            advance(f"mean loss {loss:.3f}  {epochs[0][0].images_per_second:.0f} images/s")
    return {
        seed: Prepared(each.split, ReplayedTrainer(each.trainer, of_seed), each.measure)
        for (seed, each), of_seed in zip(prepared.items(), past, strict=True)
    }
