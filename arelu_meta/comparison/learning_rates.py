"""Accuracy against the learning rate, arm by arm: a gain in the activation shifts the best rate, and one rate for all
arms then compares rates, not activations.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from arelu_meta.console import progress
from arelu_meta.console.flags import FLAGS, validated
from arelu_meta.console.tables import text_table
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.finetune.spec import FineTuneSpec
from arelu_meta.kinds.run import run
from arelu_meta.store.connection import finished_metrics

NEAR = 0.01  # rates whose validation accuracy is this near to the best are as good


@dataclass(frozen=True)
class Point:
    """One run: validation accuracy of its selected epoch and test accuracy; NaN where the loss ran away."""

    arm: str
    lr: float
    seed: int
    validation: float
    test: float


@dataclass(frozen=True)
class Best:
    """The rate of an arm with the best mean validation accuracy, the test accuracy there, and rates as good."""

    arm: str
    lr: float
    validation: float
    test: float
    near: tuple[float, float]
    at_edge: bool


def rates(text: str) -> list[float]:
    """Read `LOW:HIGH` or `LOW:HIGH:PER_DECADE` into rates at equal steps of the logarithm, none above HIGH.

    >>> rates("1e-3:1e-1")
    [0.001, 0.01, 0.1]
    >>> rates("0.01:0.1:2")
    [0.01, 0.0316228, 0.1]
    """
    try:
        low, high, *more = (float(part) for part in text.split(":"))
        per_decade = int(*more) if more else 1
        span = math.log10(high / low)
        if not (low > 0 and math.isfinite(span) and span > 0 and per_decade >= 1):
            raise ValueError
    except (ValueError, TypeError, ZeroDivisionError):
        raise InputError(f"--lr-sweep {text}: give LOW:HIGH or LOW:HIGH:PER_DECADE, such as 1e-5:1e-1") from None
    steps = math.floor(span * per_decade + 1e-9)
    if not steps:
        raise InputError(f"--lr-sweep {text} has one rate; widen it, or give more per decade: LOW:HIGH:PER_DECADE")
    return [float(f"{low * 10 ** (step / per_decade):.6g}") for step in range(steps + 1)]


def cells(spec: FineTuneSpec, arms: Sequence[str], lrs: Sequence[float], seeds: Sequence[int]) -> list[FineTuneSpec]:
    """All runs of a view, arm by arm; wrong names are refused before any is started."""
    if spec.evaluation.protocol != "sound":
        raise InputError("the best rate is chosen on validation images; use --protocol sound")
    values = spec.model_dump()
    made = []
    for arm in dict.fromkeys(arms):
        network = {**values["network"], "activation": arm}
        for lr in lrs:
            training = {**values["training"], "lr": lr}
            made += [{**values, "network": network, "training": training, "seed": seed} for seed in seeds]
    return [validated(FineTuneSpec, cell, FLAGS) for cell in made]


def sweep(
    specs: Iterable[FineTuneSpec],
    execution: Execution,
    on_point: Callable[[Point, bool], None],
    bar: progress.Bar = progress.silent,
) -> list[Point]:
    """Run every cell, or take it from the store where the same run has finished; the flag says which."""
    points = []
    for spec in specs:
        found = finished_metrics(spec, experiment=execution.experiment)
        if found is None:
            try:
                result = run(spec, execution, bar=bar)
                validation = max(score for _, score in result.curves["validation"])
                scores = (validation, result.test.mean)
            except DivergedError:  # a rate so high that the loss is no longer finite is an answer, too
                scores = (math.nan, math.nan)
        else:
            metrics = found[1]
            scores = (metrics["validation/selected_accuracy"], metrics["test/accuracy"])
        points.append(Point(spec.network.activation, spec.training.lr, spec.seed, *scores))
        on_point(points[-1], found is not None)
    return points


def means(points: Sequence[Point], what: str) -> dict[str, list[tuple[float, float]]]:
    """Mean over seeds by arm, as (rate, accuracy); a rate at which a seed ran away has no mean."""
    table: dict[str, dict[float, list[float]]] = {}
    for point in points:
        table.setdefault(point.arm, {}).setdefault(point.lr, []).append(getattr(point, what))
    return {arm: [(lr, sum(values) / len(values)) for lr, values in row.items()] for arm, row in table.items()}


def best_rates(points: Sequence[Point]) -> list[Best]:
    """Choose each arm's rate on validation; of equal ones the lowest. An arm that ran away everywhere is left out."""
    tests = {arm: dict(row) for arm, row in means(points, "test").items()}
    chosen = []
    for arm, row in means(points, "validation").items():
        finite = [(lr, score) for lr, score in row if not math.isnan(score)]
        if finite:
            lr, top = max(finite, key=lambda pair: pair[1])
            near = [rate for rate, score in finite if score >= top - NEAR]
            at_edge = lr in (row[0][0], row[-1][0])
            chosen.append(Best(arm, lr, top, tests[arm][lr], (min(near), max(near)), at_edge))
    return chosen


def table(points: Sequence[Point]) -> str:
    """Validation accuracy by arm and rate, then the best rates and their distance from the first arm's, in decades."""
    rows = means(points, "validation")
    lrs = sorted({point.lr for point in points})
    grid = [(arm, *(percent(dict(row)[lr]) for lr in lrs)) for arm, row in rows.items()]
    best = best_rates(points)
    seeds = len({point.seed for point in points})
    title = f"validation accuracy % by learning rate, mean of {seeds} seed{'s' if seeds > 1 else ''}"
    title += "\n" + text_table(("activation", *(f"{lr:g}" for lr in lrs)), grid)
    if not best:
        return f"{title}\n\nevery run diverged"
    lines = [
        (
            one.arm,
            f"{one.lr:g}" + (" (edge)" if one.at_edge else ""),
            f"{math.log10(one.lr / best[0].lr):+.2f}",
            f"{one.near[0]:g} to {one.near[1]:g}",
            percent(one.validation),
            percent(one.test),
        )
        for one in best
    ]
    header = ("activation", "best rate", "decades from the first", "within 1 point", "validation %", "test %")
    edge = "\n\nedge: the best rate is the last one tried; widen --lr-sweep" if any(one.at_edge for one in best) else ""
    return f"{title}\n\n{text_table(header, lines)}{edge}"


def csv(points: Iterable[Point]) -> str:
    """Every run as a line."""
    lines = [f"{point.arm},{point.lr:g},{point.seed},{point.validation:.6f},{point.test:.6f}" for point in points]
    return "\n".join(["activation,lr,seed,validation_accuracy,test_accuracy", *lines]) + "\n"


def percent(share: float) -> str:
    """Write an accuracy, or what happened instead."""
    return "diverged" if math.isnan(share) else f"{100 * share:.2f}"
