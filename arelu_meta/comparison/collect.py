"""The finished runs of a comparison as tables: `results` and `curves` for users, `Findings` for the report."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from mlflow.entities import Run

from arelu_meta import activations, kinds
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.speed import is_speed, less_is_better, measured_runs, time_unit
from arelu_meta.comparison.cells import Cell, scale_metric
from arelu_meta.comparison.experiment import Experiment, format_value
from arelu_meta.comparison.parent_run import ParentRun, coordinates, latest_parent_run
from arelu_meta.comparison.worker import SECONDS_TAG
from arelu_meta.errors import unknown
from arelu_meta.store.connection import has_diverged
from arelu_meta.store.histories import histories, text_artifacts

_HIDDEN = ("activation/", "layers/", "system/")  # metrics of single layers and of the machine
_VALIDATION = "validation/"
_EPISODES = "test_episodes.csv"
_METRICS_OF_EPISODES = ("test/accuracy", "test/mse")  # the mean over the episodes
_EXECUTION = "exec."  # tags of how a run was carried out
_ORIGIN = {"commit": "git_commit", "machine": "machine", "threads": "exec.threads", "kernels": "kernels"}
_FACTS = {
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


def results(name: str, *, budget: float = 1.0) -> pd.DataFrame:
    """Give the finished cells of a comparison as a table.

    The comparison is looked for by name in the store of this environment (MLFLOW_TRACKING_URI, else `mlflow.db`); of
    several editions of its file, the one that was run last is taken.

    Args:
        name: name of the comparison, which is the name of its experiment file.
        budget: the budget it was run with.

    Returns:
        One row per cell: a column per axis, `seed`, a column per metric (at its last step, of a validation metric the
        best; shares in per cent), `run_id`, `seconds` of the last try, and the run's `commit`, `machine`, `threads` and
        `kernels` (their generation), empty where it does not say. A cell that diverged has no metrics.

    Raises:
        InputError: the store holds no such comparison.

    Example:
        >>> import arelu_meta
        >>> arelu_meta.results("maml_digits")  # doctest: +SKIP
          activation  seed  test/accuracy  ...
    """
    parent = latest_parent_run(name, budget)
    return runs_table(parent, parent.ended_cells())


def curves(name: str, metric: str, *, budget: float = 1.0) -> pd.DataFrame:
    """Give a metric of every finished cell of a comparison over its steps.

    Args:
        name: name of the comparison, as for `results`.
        metric: name of the metric, such as `train/accuracy`.
        budget: the budget it was run with.

    Returns:
        One row per cell and step: a column per axis, `seed`, `metric`, `step`, `value` (shares in per cent).

    Raises:
        InputError: the store holds no such comparison, or none of its cells has the metric.

    Example:
        >>> import arelu_meta
        >>> arelu_meta.curves("maml_digits", "train/accuracy")  # doctest: +SKIP
          activation  seed          metric  step      value
    """
    parent = latest_parent_run(name, budget)
    runs = [run for run in parent.ended_cells() if not has_diverged(run)]
    table = curves_table(parent, runs, [metric])
    if table is None:
        raise unknown("metric", metric, sorted({key for run in runs for key in run.data.metrics}))
    return table


def collect_findings(
    experiment: Experiment,
    parent: ParentRun,
    cells: Sequence[Cell],
    *,
    published: Sequence[Mapping[str, str]] = (),
    missing: Iterable[str] = (),
    budget: float = 1.0,
    command: str = "",
) -> Findings:
    """Read all cells that have a result, for the report; shares become per cent, as published figures are."""
    report = experiment.report
    metric = scale_metric(report.metric, budget)
    others = {scale_metric(name, budget): name for name in report.other_metrics}
    ended = parent.ended_cells()
    runs = [run for run in ended if not has_diverged(run)]
    table = runs_table(parent, ended)
    if ended and not runs:  # so that the report can say that none has a finite result
        table[[metric, *filter(None, [report.validation_metric])]] = math.nan
    table, failure_metric = _by_speed(table, metric) if is_speed(metric) else (table, None)
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
        higher_is_better=not less_is_better(metric) if report.higher_is_better is None else report.higher_is_better,
        **{name: getattr(report, name) for name in ("controls", "explained", "primary", "margin")},
        chance=_chance(report.chance, failure_metric or metric, cells),
        failure_metric=failure_metric,
        planned_seeds=experiment.seeds,
        overlap=_overlap(ended),
        groups=activation_groups() if report.arm == "activation" else {},
        published=pd.DataFrame(published).astype({"value": float}) if published else None,
        curves=curves_table(parent, runs, report.curves),
        step=kinds.entry(cells[0].spec.kind).step,
        episodes=_episodes(parent, runs, metric) if metric in _METRICS_OF_EPISODES else {},
        missing=tuple(missing),
        budget=min(cell.share for cell in cells),
        protocol={"task": experiment.task, **_facts(runs), "command": command},
        execution=_execution(runs, report.arm),
        units=_units(metric, *others, *report.curves, report.validation_metric),
    )


def _by_speed(table: pd.DataFrame, metric: str) -> tuple[pd.DataFrame, str | None]:
    """The runs that measured a speed, and the score of the same images, which tells those that failed."""
    scores = (f"{metric.rpartition('/')[0]}/{name}" for name in ("accuracy", "test_accuracy", "dice"))
    return measured_runs(table, metric), next((name for name in scores if name in table), None)


def _facts(runs: Sequence[Run]) -> dict[str, str]:
    """What the runs have in common; where they differ, all of it."""
    values = {label: {run.data.tags[tag] for run in runs if tag in run.data.tags} for label, tag in _FACTS.items()}
    return {label: "; ".join(sorted(found)) for label, found in values.items() if found}


def _chance(given: float | None, metric: str, cells: Sequence[Cell]) -> float | None:
    """The result of guessing in per cent: as the file says, or one of so many ways where all cells have as many."""
    if not is_share(metric) or given is not None or "accuracy" not in metric:
        return given if is_share(metric) else None
    ways = {getattr(getattr(cell.spec, "episode", None), "ways", None) for cell in cells}
    (only,) = ways if len(ways) == 1 else (None,)
    return 100 / only if isinstance(only, int) else None


def _overlap(runs: Sequence[Run]) -> float | None:
    """Test images per training image, the most of any run; None where runs do not say."""
    sizes = [dict(pair.split("=") for pair in run.data.tags.get("split_sizes", "").split()) for run in runs]
    return max((int(one["test"]) / int(one["train"]) for one in sizes if one), default=None)


def activation_groups() -> dict[str, str]:
    """Which activations are learnable, and which not, as the AReLU paper groups them: controls are in neither group.

    >>> groups = activation_groups()
    >>> groups["relu"], groups["prelu"], "arelu_frozen" in groups
    ('non-learnable', 'learnable', False)
    """
    compared = [entry for entry in activations.entries() if entry.group not in ("control", "own")]
    return {entry.name: "learnable" if entry.parameters else "non-learnable" for entry in compared}


def _units(*metrics: str | None) -> dict[str, str]:
    """The unit of each metric that has one."""
    units = {name: "%" if is_share(name) else time_unit(name) for name in metrics if name}
    return {name: unit for name, unit in units.items() if unit}


def is_share(metric: str) -> bool:
    """Tell whether a metric lies between 0 and 1 and is shown in per cent.

    >>> is_share("test/accuracy"), is_share("test/finetune_20"), is_share("train/loss"), is_share("test/n")
    (True, True, False, False)
    """
    last = metric.rpartition("/")[2]
    return "accuracy" in last or "dice" in last or last.startswith(("finetune_", "no_"))


def runs_table(parent: ParentRun, runs: Sequence[Run]) -> pd.DataFrame:
    """Lay out runs as `results` gives them.

    Of a validation metric the best is taken: the parameters tested are those that validated best, and a setting may be
    chosen by their score. A run that diverged has no metrics, whatever it logged before.
    """
    if not runs:
        return pd.DataFrame()
    rows: list[dict[str, Any]] = []
    converged = [run for run in runs if not has_diverged(run)]
    validated = {key for run in converged for key in run.data.metrics if key.startswith(_VALIDATION)}
    steps = {key: _histories(parent, converged, key) for key in validated}
    for run in runs:
        logged = {} if has_diverged(run) else run.data.metrics
        metrics = {key: value for key, value in logged.items() if not key.startswith(_HIDDEN)}
        for key in validated & metrics.keys():
            metrics[key] = (min if less_is_better(key) else max)(steps[key][run.info.run_id].values())
        shown = {key: 100 * value if is_share(key) else value for key, value in metrics.items()}
        # A worker that died after its run had finished left no time of its own.
        seconds = run.data.tags.get(SECONDS_TAG) or (run.info.end_time - run.info.start_time) / 1000
        origin = {column: run.data.tags.get(tag, "") for column, tag in _ORIGIN.items()}
        rows.append({**coordinates(run), **shown, "run_id": run.info.run_id, "seconds": float(seconds), **origin})
    first, last = [*coordinates(runs[0])], ["run_id", "seconds", *_ORIGIN]
    names = sorted({name for row in rows for name in row}.difference(first, last))
    table = pd.DataFrame(rows, columns=[*first, *names, *last])
    numbers = {column: pd.to_numeric(table[column], errors="coerce") for column in ("threads", "kernels")}
    return table.assign(**numbers)


def curves_table(parent: ParentRun, runs: Sequence[Run], metrics: Sequence[str]) -> pd.DataFrame | None:
    """Lay out metrics of runs as `curves` gives them; None where none was logged."""
    steps = {metric: _histories(parent, runs, metric) for metric in metrics}
    rows = [
        {**place, "metric": metric, "step": step, "value": 100 * value if is_share(metric) else value}
        for run, place in ((run, coordinates(run)) for run in runs)
        for metric in metrics
        for step, value in steps[metric].get(run.info.run_id, {}).items()
    ]
    return pd.DataFrame(rows) if rows else None


def _histories(parent: ParentRun, runs: Sequence[Run], metric: str) -> dict[str, dict[int, float]]:
    """Value by step of the runs that have the metric."""
    return histories(parent.client, [run.info.run_id for run in runs if metric in run.data.metrics], metric)


def _episodes(parent: ParentRun, runs: Sequence[Run], metric: str) -> dict[str, np.ndarray]:
    """The metric, shares in per cent, of every test episode after every inner step, of runs that stored them."""
    scale, texts = 100 if is_share(metric) else 1, text_artifacts(parent.client, runs, _EPISODES)
    return {
        run_id: scale * np.loadtxt(text.splitlines(), delimiter=",", skiprows=1, ndmin=2)[:, 1:]
        for run_id, text in texts.items()
    }


def _execution(runs: Sequence[Run], arm: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """How the runs of each arm were carried out: the values of every execution tag, by arm and tag."""
    by_arm: dict[str, dict[str, set[str]]] = {}
    for run in runs:
        tags = by_arm.setdefault(format_value(coordinates(run)[arm]), {})
        for tag, value in run.data.tags.items():
            if tag.startswith(_EXECUTION):
                tags.setdefault(tag, set()).add(value)
    return {name: {tag: tuple(sorted(values)) for tag, values in sorted(tags.items())} for name, tags in by_arm.items()}
