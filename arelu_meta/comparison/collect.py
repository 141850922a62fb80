"""Collect what the runs of a comparison left in the store into `Findings`."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from mlflow.entities import Run

from arelu_meta.analysis.findings import Findings
from arelu_meta.comparison.budget import scaled_metric
from arelu_meta.comparison.experiment import Experiment
from arelu_meta.comparison.job import SECONDS
from arelu_meta.comparison.measures import is_share
from arelu_meta.comparison.record import Record, place
from arelu_meta.errors import InputError
from arelu_meta.store.connection import has_diverged, read_artifact

HIDDEN, VALIDATION = ("activation/", "system/"), "validation/"
EPISODES = "test_episodes.csv"
OF_EPISODES = "test/accuracy"  # the metric that is the mean over them
FACTS = {
    "protocol": "protocol",
    "held out": "held_out",
    "transductive": "transductive",
    "data digest": "data_digest",
    "data verified": "data_verified",
    "split digest": "split_digest",
    "device": "device",
    "arelu_meta": "arelu_meta",
    "torch": "torch",
    "python": "python",
    "git commit": "git_commit",
}


def collect(
    experiment: Experiment,
    record: Record,
    *,
    published: Sequence[Mapping[str, str]] = (),
    missing: Iterable[str] = (),
    budget: float = 1.0,
    share: float = 1.0,
    command: str = "",
) -> Findings:
    """Read all cells that have a result; shares become per cent, as published figures are."""
    report = experiment.report
    metric = scaled_metric(report.metric, budget)
    others = {scaled_metric(name, budget): name for name in report.further}
    ended = record.finished_cells()
    runs = [run for run in ended if not has_diverged(run)]
    table = runs_table(record, ended)
    if ended and not runs:  # so that it can be said that none has a result
        table[[metric, *filter(None, [report.validation_metric])]] = math.nan
    return Findings(
        name=experiment.experiment,
        title=experiment.title,
        question=experiment.question,
        runs=table,
        axes=tuple(experiment.axes),
        arm=report.arm,
        baseline=report.baseline,
        metric=metric,
        other_metrics=others,
        validation_metric=report.validation_metric,
        higher_is_better=report.higher_is_better,
        controls=report.controls,
        published=_published(published),
        curves=curves_table(record, runs, tuple(experiment.axes), report.curves),
        step=_step(runs),
        episodes=_episodes(runs) if metric == OF_EPISODES else {},
        missing=tuple(missing),
        budget=share,
        protocol={"task": experiment.task, **_facts(runs), "command": command},
        units={name: "%" for name in (metric, *others, *report.curves) if is_share(name)},
    )


def runs_table(record: Record, runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run: axes, seed, metrics at their last step, run_id, seconds.

    Of a validation metric the best is taken: the parameters tested are those that validated best, and a setting may be
    chosen by their score. A run that diverged has no metrics, whatever it had come to before.
    """
    if not runs:
        return pd.DataFrame()
    rows: list[dict[str, Any]] = []
    for run in runs:
        metrics = {} if has_diverged(run) else run.data.metrics
        last = {key: value for key, value in metrics.items() if not key.startswith(HIDDEN)}
        best = {key: max(_history(record, run, key).values()) for key in last if key.startswith(VALIDATION)}
        values = {key: 100 * value if is_share(key) else value for key, value in {**last, **best}.items()}
        rows.append({**place(run), **values, "run_id": run.info.run_id, "seconds": _seconds(run)})
    ends = [*place(runs[0])], ["run_id", "seconds"]
    names = sorted({name for row in rows for name in row}.difference(*ends))
    return pd.DataFrame(rows, columns=[*ends[0], *names, *ends[1]])


def _seconds(run: Run) -> float:
    """Time of the last try; for a run whose worker died after finishing it, from its start to its end."""
    if SECONDS in run.data.tags:
        return float(run.data.tags[SECONDS])
    return (run.info.end_time - run.info.start_time) / 1000


def _history(record: Record, run: Run, metric: str) -> dict[int, float]:
    """Value by step; of a step that a resumed run repeated, the last."""
    entries = record.client.get_metric_history(run.info.run_id, metric)
    return {entry.step: entry.value for entry in sorted(entries, key=lambda entry: (entry.step, entry.timestamp))}


def curves_table(
    record: Record, runs: Sequence[Run], axes: Sequence[str], metrics: Sequence[str]
) -> pd.DataFrame | None:
    """One row per step of a metric of a run: axes, seed, metric, step, value; None where none was logged."""
    rows = [
        {**place(run), "metric": metric, "step": step, "value": 100 * value if is_share(metric) else value}
        for run in runs
        for metric in metrics
        for step, value in _history(record, run, metric).items()
    ]
    return pd.DataFrame(rows, columns=[*axes, "seed", "metric", "step", "value"]) if rows else None


def _episodes(runs: Sequence[Run]) -> dict[str, np.ndarray]:
    """Accuracy in per cent of every test episode after every inner step, for runs that have episodes."""
    found: dict[str, np.ndarray] = {}
    for run in runs:
        if _kind(run) != "few_shot":
            continue
        try:
            text = read_artifact(run.info.run_id, EPISODES)
        except InputError:
            continue  # the store's own files were moved; the metrics are still there
        found[run.info.run_id] = 100 * pd.read_csv(io.StringIO(text)).iloc[:, 1:].to_numpy()
    return found


def _kind(run: Run) -> str:
    return str(run.data.params.get("kind", run.data.tags.get("kind")))


def _step(runs: Sequence[Run]) -> str:
    return "iteration" if runs and _kind(runs[0]) == "few_shot" else "epoch"


def _facts(runs: Sequence[Run]) -> dict[str, str]:
    """What the runs say of themselves; where they differ, all of it."""
    facts: dict[str, str] = {}
    for label, tag in FACTS.items():
        values = sorted({run.data.tags[tag] for run in runs if tag in run.data.tags})
        if values:
            facts[label] = "; ".join(values)
    return facts


def _published(rows: Sequence[Mapping[str, str]]) -> pd.DataFrame | None:
    if not rows:
        return None
    table = pd.DataFrame(rows)
    table["value"] = pd.to_numeric(table["value"])
    return table
