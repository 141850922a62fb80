"""Run or resume every cell of a comparison, and report: the one place that wires the parts together."""

import json
import logging
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE
from mlflow.utils.validation import MAX_EXPERIMENT_TAG_VAL_LENGTH

from arelu_meta.comparison.cells import Cell, Shard, comparison_hash, expand, shard_of
from arelu_meta.comparison.collect import collect_findings
from arelu_meta.comparison.experiment import Experiment, read_experiment, read_published
from arelu_meta.comparison.overview import Overview
from arelu_meta.comparison.parent_run import AXES, BUDGET, ParentRun, open_parent_run
from arelu_meta.comparison.pool import Pool
from arelu_meta.comparison.result import ComparisonResult
from arelu_meta.comparison.saved_view import experiment_tags
from arelu_meta.comparison.validation import check_cells
from arelu_meta.comparison.worker import WAITING, CellOutcome, Job
from arelu_meta.console import output, progress
from arelu_meta.errors import InputError, RunError, StoreError, first_line
from arelu_meta.kinds.execution import Execution
from arelu_meta.reporting import Report, make_report, report_metrics, write_report
from arelu_meta.reporting.markdown import MOST_NOTE, markdown_note
from arelu_meta.runtime.machine import process_name
from arelu_meta.store.connection import quiet_loggers
from arelu_meta.store.grid_images import pictures_of
from arelu_meta.store.journal import runs_folder
from arelu_meta.store.sending import PROCESS
from arelu_meta.store.settling import flush, settle_runs


class Workers(Protocol):
    """Whatever runs cells: processes here, or a cluster."""

    @property
    def count(self) -> int:
        """How many cells run at once, as far as it is known here."""

    def run(self, jobs: Sequence[Job], overview: Overview) -> Generator[CellOutcome, None, None]:
        """Run all jobs and give their outcomes as they end."""


@dataclass(frozen=True)
class Plan:
    """What is to be run, and how."""

    experiment: Experiment
    cells: Sequence[Cell]
    """all that belong to the comparison; with a shard, only its own are run"""
    shard: Shard | None = None
    budget: float = 1.0
    published: Sequence[dict[str, str]] = ()
    execution: Execution = field(default_factory=Execution)
    any_version: bool = False
    command: str = ""

    @property
    def own_cells(self) -> Sequence[Cell]:
        """The cells to run: of the shard, or all."""
        return shard_of(self.cells, self.shard) if self.shard else self.cells

    @property
    def name(self) -> str:
        """Name of the comparison."""
        return self.experiment.experiment

    def open_parent_run(self) -> ParentRun:
        """Find the parent run in the store, or make it."""
        return open_parent_run(
            self.name,
            comparison_hash(self.experiment, self.budget),
            note=f"{self.experiment.title}\n\n{self.experiment.question}",
            any_version=self.any_version,
        )

    @property
    def folder(self) -> Path:
        """Where its locks and its report are."""
        identity = comparison_hash(self.experiment, self.budget)
        return runs_folder() / f"comparison-{self.name}-{identity[:12]}"


def run_comparison(
    experiment: str | Experiment,
    *,
    only: Mapping[str, Sequence[str]] | None = None,
    seeds: Sequence[int] | None = None,
    budget: float = 1.0,
    shard: Shard | None = None,
    workers: AbstractContextManager[Workers] | None = None,
    execution: Execution | None = None,
    any_version: bool = False,
) -> ComparisonResult:
    """Run what is not finished of a comparison, then report: `python -m arelu_meta.compare` as a function.

    Workers are processes that import the main module: a script needs `if __name__ == "__main__":`, a notebook does not.

    Args:
        experiment: a built-in experiment by name, an experiment file by path, or an `Experiment`.
        only: values to run, by axis: `{"activation": ["relu", "arelu"]}`.
        seeds: seeds in place of the experiment's.
        budget: share of the full training, above 0 and at most 1.
        shard: `(2, 8)` runs the second of eight shares of the cells; the call that completes the last share reports.
        workers: what runs the cells: `Pool(workers=2)` or `RayCluster()`; without it one process.
        execution: device and folder of the data.
        any_version: accept results of another version of the package.

    Returns:
        The report, the cells without a result, the parent run in MLflow and the folder of the report.

    Raises:
        InputError: the experiment or an argument is wrong, or the store cannot be used.

    Example:
        >>> from arelu_meta.comparison import run_comparison
        >>> result = run_comparison("maml_digits", seeds=[0], budget=0.05)  # doctest: +SKIP
        >>> result.report.analysis.findings.runs[["activation", "test/accuracy"]]  # doctest: +SKIP
    """
    published: list[dict[str, str]] = []
    if isinstance(experiment, str):
        name, experiment = experiment, read_experiment(experiment)
        published = read_published(experiment, name)
    plan = Plan(
        experiment=experiment,
        cells=expand(experiment, only=only, seeds=seeds, budget=budget),
        shard=shard,
        budget=budget,
        published=published,
        execution=execution or Execution(),
        any_version=any_version,
    )
    return run_plan(plan, workers or Pool())


def run_plan(plan: Plan, workers: AbstractContextManager[Workers]) -> ComparisonResult:
    """Run what is not finished, collect everything, and write the report to a folder and the parent run.

    Before anything is started, all that the cells name is found and built once (`check_cells`).

    A shard reports only when all cells have a result. Shards may run at the same time, in one folder or in several.
    """
    check_cells(plan.own_cells, root=plan.execution.data_root)
    resume = f"to resume: {plan.command}" if plan.command else "run it again to resume"
    try:
        with _locked(plan), quiet_loggers(logging.WARNING):
            return _run_locked(plan, workers)
    except KeyboardInterrupt:
        output.write_line(resume)
        raise
    except (MlflowException, OSError) as error:
        raise RunError(f"the store or the disk failed: {first_line(error)}; {resume}") from error


def _run_locked(plan: Plan, workers: AbstractContextManager[Workers]) -> ComparisonResult:
    settle_runs(plan.name)
    parent = plan.open_parent_run()
    done = parent.adopt(plan.cells, plan.name)
    parent.start(_tags(plan))
    status, report = "FAILED", None
    try:
        outcomes = _run(plan, parent, [cell for cell in plan.own_cells if cell.identity not in done], workers)
        flush(runs_folder())
        try:
            current = plan.open_parent_run()
        except StoreError as error:
            waiting = sum(outcome.reason == WAITING for outcome in outcomes)
            raise RunError(
                f"{waiting} cells have ended and wait in their folders: {error}; then run it again"
            ) from error
        if current.run_id != parent.run_id:  # shards that started at the same moment may have made one each
            current.start(_tags(plan))
            with suppress(MlflowException):  # another shard may have deleted it
                parent.client.delete_run(parent.run_id)
            parent, done = current, set()
        if len(done) < len(plan.cells):  # again: others may have finished cells meanwhile
            done = parent.adopt(plan.cells, plan.name)
        reasons = {cell.identity: "another shard has not run it yet" for cell in plan.cells}
        reasons |= {cell.identity: "its run is no longer in the store" for cell in plan.own_cells}
        reasons |= {outcome.cell.identity: outcome.reason for outcome in outcomes if outcome.reason}
        missing, own_missing = (
            tuple(f"{cell.label}: {reasons[cell.identity]}" for cell in cells if cell.identity not in done)
            for cells in (plan.cells, plan.own_cells)
        )
        if plan.shard is None or not missing:
            report = _report(plan, parent, missing)
        status = "FAILED" if own_missing else "RUNNING" if missing else "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        if status != "RUNNING":  # which it is while other shards have cells to run
            parent.end(status)
    return ComparisonResult(report, missing, own_missing, parent, plan.folder / "report")


def _run(
    plan: Plan, parent: ParentRun, cells: Sequence[Cell], workers: AbstractContextManager[Workers]
) -> list[CellOutcome]:
    """Run cells on the workers."""
    total = len(plan.own_cells)
    what = f"{plan.name}: {total} cell{'s' * (total != 1)}"
    if plan.shard:
        what += f" of {len(plan.cells)} (shard {plan.shard[0]}/{plan.shard[1]})"
    progress.say(f"{what}, {total - len(cells)} of them finished before")
    if not cells:
        return []
    with workers as entered, Overview(len(cells)) as overview:
        jobs = []
        for cell in cells:
            tags = {**plan.execution.tags, **parent.tags_for(cell, plan.name), "exec.workers": str(entered.count)}
            execution = plan.execution.model_copy(update={"experiment": plan.name, "tags": tags})
            jobs.append(Job(cell, execution, plan.folder))
        outcomes = []
        with closing(entered.run(jobs, overview)) as ended:
            for outcome in ended:
                # Its lock went with it: another runner may be at work on the same cells from now on.
                if not outcome.has_result and not plan.folder.exists():
                    raise FileNotFoundError(f"{plan.folder} was deleted or renamed; put it back")
                outcomes.append(outcome)
        return outcomes


def _tags(plan: Plan) -> dict[str, str]:
    """What the experiment file says beyond the hash: it may be edited."""
    # A shard that ends leaves the parent run open for the others.
    process = {PROCESS: process_name()} if plan.shard is None else {}
    return {
        **process,
        "task": plan.experiment.task,
        "arm": plan.experiment.report.arm,
        "baseline": plan.experiment.report.baseline,
        BUDGET: f"{plan.budget:g}",
        AXES: json.dumps(plan.experiment.axes),
    }


def _report(plan: Plan, parent: ParentRun, missing: tuple[str, ...]) -> Report:
    """Write the report into its folder and to the parent run; without a finished cell there is nothing to say."""
    folder = plan.folder / "report"
    with FileLock(plan.folder / "report.lock"):
        findings = collect_findings(
            plan.experiment,
            parent,
            plan.cells,
            published=plan.published,
            missing=missing,
            budget=plan.budget,
            command=plan.command,
        )
        shutil.rmtree(folder, ignore_errors=True)  # figures of an earlier one may have other names
        folder.mkdir(parents=True)
        report = make_report(findings)
        if not findings.runs.empty:
            write_report(report, folder)
        tags = {"cells.finished": str(len(findings.runs)), "cells.missing": str(len(missing))}
        note = markdown_note(
            report,
            plan.command,
            run_id=parent.run_id,
            experiment_id=parent.experiment_id,
            most=min(MOST_NOTE, MAX_EXPERIMENT_TAG_VAL_LENGTH),
        )
        parent.write_report(folder, report_metrics(report), {**tags, MLFLOW_RUN_NOTE: note})
        single = findings.runs if findings.single_runs is None else findings.single_runs
        pictures = {} if single.empty else pictures_of(parent.client, str(single["run_id"].iloc[0]))
        view = experiment_tags(findings, parent.run_id, pictures)
        parent.describe_experiment({MLFLOW_RUN_NOTE: note, **view})
    return report


@contextmanager
def _locked(plan: Plan) -> Iterator[None]:
    """Refuse a second runner of the same cells in the same folder: the two would wait for each other at every cell."""
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write {plan.folder}: {error.strerror}; set ARELU_META_RUNS to another folder"
        ) from error
    lock = FileLock(plan.folder / ("shard-{}-of-{}.lock".format(*plan.shard) if plan.shard else "lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        what = f"comparison {plan.name!r}" if plan.shard is None else f"this shard of comparison {plan.name!r}"
        raise InputError(f"{what} is being run by another process; wait for it or end it") from None
    try:
        yield
    finally:
        lock.release()
