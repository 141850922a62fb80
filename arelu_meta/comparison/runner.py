"""Run or resume every cell of a comparison, and report: the one place that wires the parts together."""

import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from arelu_meta.analysis.findings import Findings
from arelu_meta.comparison.collect import collect
from arelu_meta.comparison.experiment import Experiment
from arelu_meta.comparison.grid import Cell, comparison_hash
from arelu_meta.comparison.job import Job, Listener, Outcome
from arelu_meta.comparison.overview import Overview
from arelu_meta.comparison.record import AXIS, BUDGET, Record, open_record
from arelu_meta.comparison.selection import written
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import Execution
from arelu_meta.reporting import Report, make_report, report_metrics, write_report


class Workers(Protocol):
    """Whatever runs cells: processes here, or a cluster."""

    def run(self, jobs: Sequence[Job], listener: Listener) -> Iterator[Outcome]:
        """Run all jobs and give their outcomes as they end."""


@dataclass(frozen=True)
class Plan:
    """What is to be run, and how."""

    experiment: Experiment
    cells: Sequence[Cell]
    budget: float = 1.0
    published: Sequence[dict[str, str]] = ()
    execution: Execution = field(default_factory=Execution)
    any_version: bool = False
    command: str = ""

    @property
    def name(self) -> str:
        """Name of the comparison."""
        return self.experiment.experiment

    @property
    def identity(self) -> str:
        """Hash of the comparison."""
        return comparison_hash(self.experiment, self.budget)

    @property
    def folder(self) -> Path:
        """Where its lock and its report are."""
        return Path(os.environ.get("ARELU_META_RUNS") or "runs") / f"comparison-{self.name}-{self.identity[:12]}"


@dataclass(frozen=True)
class Comparison:
    """What came of it."""

    findings: Findings
    record: Record
    folder: Path
    report: Report
    """What is said of the findings."""


def compare(plan: Plan, workers: AbstractContextManager[Workers]) -> Comparison:
    """Run what is not finished, collect everything, and leave the report with the parent run."""
    with _alone(plan):
        record = open_record(
            plan.name,
            plan.identity,
            note=f"{plan.experiment.title}\n\n{plan.experiment.question}",
            any_version=plan.any_version,
        )
        found = record.take_finished(plan.cells, plan.name)
        todo = [cell for cell in plan.cells if cell.spec.identity not in found]
        record.begin(_tags(plan))
        status = "FAILED"
        try:
            outcomes = _run(plan, record, todo, workers)
            # Again, because other runners may have finished cells meanwhile, or taken them to an edition of their own.
            missing = _missing(plan, outcomes, record.take_finished(plan.cells, plan.name))
            share = min(cell.share for cell in plan.cells)
            findings = collect(
                plan.experiment,
                record,
                published=plan.published,
                missing=missing,
                budget=plan.budget,
                share=share,
                command=plan.command,
            )
            report = make_report(findings)
            _leave_report(report, record, plan.folder / "report")
            status = "FAILED" if missing else "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            record.end(status)
        return Comparison(findings, record, plan.folder / "report", report)


def _run(plan: Plan, record: Record, cells: Sequence[Cell], workers: AbstractContextManager[Workers]) -> list[Outcome]:
    runner = uuid.uuid4().hex
    jobs = [
        Job(
            cell,
            plan.execution.model_copy(
                update={"experiment": plan.name, "tags": {**plan.execution.tags, **record.tags_for(cell, plan.name)}}
            ),
            runner,
        )
        for cell in cells
    ]
    count, before = len(plan.cells), len(plan.cells) - len(cells)
    sys.stderr.write(f"{plan.name}: {count} cell{'s' * (count != 1)}, {before} of them finished before\n")
    if not jobs:
        return []
    with workers as pool, Overview(len(cells)) as overview:
        return list(pool.run(jobs, overview))


def _missing(plan: Plan, outcomes: Sequence[Outcome], finished: Mapping[str, str]) -> list[str]:
    """Name the cells that have no result, with the reason."""
    reasons = {outcome.cell.spec.identity: outcome.reason for outcome in outcomes}
    lost = "its run is no longer in the store"
    return [
        f"{cell.label}: {reasons.get(cell.spec.identity) or lost}"
        for cell in plan.cells
        if cell.spec.identity not in finished
    ]


def _tags(plan: Plan) -> dict[str, str]:
    """What the file says and the hash does not hold fast: it may be edited."""
    judged = plan.experiment.report
    axes = {f"{AXIS}{axis}": ", ".join(map(written, values)) for axis, values in plan.experiment.axes.items()}
    return {
        "task": plan.experiment.task,
        "arm": judged.arm,
        "baseline": judged.baseline,
        BUDGET: f"{plan.budget:g}",
        **axes,
    }


def _leave_report(report: Report, record: Record, folder: Path) -> None:
    """Write the report into a folder and to the parent run; without a finished cell there is nothing to say."""
    findings = report.analysis.findings
    tags = {"cells.finished": str(len(findings.runs)), "cells.missing": str(len(findings.missing))}
    shutil.rmtree(folder, ignore_errors=True)  # figures of an earlier one may have other names
    folder.mkdir(parents=True)
    if not findings.runs.empty:
        write_report(report, folder)
    record.write(folder, report_metrics(report), tags)


@contextmanager
def _alone(plan: Plan) -> Iterator[None]:
    """Two runners of one comparison would meet at every cell."""
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write {plan.folder}: {error.strerror}; set ARELU_META_RUNS to another folder"
        ) from error
    lock = FileLock(plan.folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"comparison {plan.name!r} is being run by another process; wait for it or end it") from None
    try:
        yield
    finally:
        lock.release()
