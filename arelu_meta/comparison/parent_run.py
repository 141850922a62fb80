"""A comparison in MLflow: an experiment of its name, a parent run, the cells' runs nested below it."""

import json
import math
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME, MLFLOW_RUN_NOTE

from arelu_meta import __version__
from arelu_meta.comparison.cells import Cell
from arelu_meta.errors import InputError
from arelu_meta.runtime.machine import process_name
from arelu_meta.runtime.signals import HELD_SECONDS, hold_signals
from arelu_meta.store.connection import DIVERGED, check_reachable, experiment_exists, is_server, open_store
from arelu_meta.store.histories import no_garbage_collection
from arelu_meta.store.run_tables import JUDGEMENT
from arelu_meta.store.sending import PROCESS, no_address_printed

NAME, HASH, CELL, STARTED = "comparison", "comparison.hash", "comparison.cell", "comparison.called"
AXES, BUDGET = "comparison.axes", "budget"
REPORT, NUMBER = "report", "report.number"
_MOST_RUNS = 50_000  # that MLflow gives at once
_ONE_BY_ONE = 50  # cells that are looked for each by its identity


@dataclass(frozen=True)
class ParentRun:
    """The parent run of a comparison."""

    client: MlflowClient
    experiment_id: str
    run_id: str
    _adopted: list[Run] = field(default_factory=list, compare=False, repr=False)
    """runs that `adopt` has just read, for `ended_cells` to use: reading a thousand takes seconds"""

    def tags_for(self, cell: Cell, name: str) -> dict[str, str]:
        """Tags that put a cell's run below this one; its values are JSON, so that numbers come back as numbers."""
        return {
            MLFLOW_PARENT_RUN_ID: self.run_id,
            NAME: name,
            CELL: json.dumps({**cell.values, "seed": cell.spec.seed}),
        }

    def ended_cells(self) -> list[Run]:
        """All runs of cells below this one that have a result, in the order of the experiment file."""
        axes = json.loads(self.client.get_run(self.run_id).data.tags.get(AXES, "{}"))

        def order(run: Run) -> list[int]:
            values = coordinates(run)
            levels = [(values[axis], axes.get(axis, [])) for axis in values if axis != "seed"]
            return [*(known.index(value) if value in known else len(known) for value, known in levels), values["seed"]]

        runs = self._adopted or ended_runs(self.client, self.experiment_id, self._below)
        found = sorted(runs, key=order)
        self._adopted.clear()
        return found

    @property
    def _below(self) -> str:
        return f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{self.run_id}'"

    @hold_signals(is_server)
    def adopt(self, cells: Iterable[Cell], name: str) -> set[str]:
        """Put the runs of these cells that have a result below this run, and give the identities of the cells.

        One that was run for another edition of the file is the same run, and moves here.
        """
        wanted = {cell.identity: cell for cell in cells}
        self._adopted.clear()
        below = ended_runs(self.client, self.experiment_id, self._below)
        adopted = self._adopt(wanted, name, below)
        missing = wanted.keys() - adopted
        if not missing:
            self._adopted.extend(below)
        named = f"tags.{NAME} = '{name}'"
        elsewhere = [f"{named} AND tags.`{MLFLOW_PARENT_RUN_ID}` != '{self.run_id}'"] if missing else []
        if len(missing) <= _ONE_BY_ONE:  # else all of the other editions' are read
            elsewhere = [f"{named} AND tags.spec_hash = '{identity}'" for identity in missing]
        for condition in elsewhere:
            adopted |= self._adopt(wanted, name, ended_runs(self.client, self.experiment_id, condition))
        return adopted

    def _adopt(self, wanted: Mapping[str, Cell], name: str, runs: Iterable[Run]) -> set[str]:
        adopted = set()
        for run in runs:
            cell = wanted.get(run.data.tags.get("spec_hash", ""))
            if cell is not None:
                adopted.add(cell.identity)
                for tag, value in self.tags_for(cell, name).items():
                    if run.data.tags.get(tag) != value:
                        self.client.set_tag(run.info.run_id, tag, value)
                        run.data.tags[tag] = value
        return adopted

    @hold_signals(is_server)
    def start(self, tags: Mapping[str, str]) -> None:
        """Show it as running, with what the experiment file says of it now."""
        self.client.update_run(self.run_id, status="RUNNING")
        now = {**tags, STARTED: f"{time.time():.3f}"}
        self.client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in now.items()])

    def end(self, status: str) -> None:
        """Close it as FINISHED, FAILED or KILLED.

        What a comparison failed of matters more than a store that is away: then the next command on the store closes
        the run. After Ctrl-C a server is waited for half a second.
        """
        if status == "FINISHED":
            self._close(status)
        elif status == "KILLED" and is_server():
            closing = threading.Thread(target=self._close_if_possible, args=(status,), daemon=True)
            closing.start()
            closing.join(HELD_SECONDS)
        else:
            self._close_if_possible(status)

    def _close_if_possible(self, status: str) -> None:
        with suppress(MlflowException, OSError):
            self._close(status)

    @hold_signals(is_server)
    def _close(self, status: str) -> None:
        check_reachable(self.client.tracking_uri, seconds=0.0)  # MLflow itself would try for minutes
        with no_address_printed():
            self.client.set_terminated(self.run_id, status=status)

    @hold_signals(is_server)
    def write_report(self, folder: Path, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Replace the report: its files as artifacts, its numbers as metrics where they have changed.

        MLflow cannot delete a metric; one that the report no longer has becomes NaN. Metrics of the first report are at
        step 0, those of the next at step 1: reported without and then with a cell that was late, none is there twice.
        """
        files = {f"{REPORT}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*")}
        folders, outdated = [REPORT], []
        while folders:
            for entry in self.client.list_artifacts(self.run_id, folders.pop()):
                if entry.is_dir:
                    folders.append(entry.path)
                elif entry.path not in files:
                    outdated.append(entry.path)
        if outdated:
            repository = get_artifact_repository(self.client.get_run(self.run_id).info.artifact_uri)
            for path in outdated:
                repository.delete_artifacts(path)
        self.client.log_artifacts(self.run_id, str(folder), REPORT)
        stored = self.client.get_run(self.run_id).data
        before, number = stored.metrics, int(stored.tags.get(NUMBER, "0")) + 1 if stored.metrics else 0
        gone = {key: math.nan for key, value in before.items() if key not in metrics and not math.isnan(value)}
        now = int(time.time() * 1000)
        after = {key: value for key, value in {**metrics, **gone}.items() if not _equal(before.get(key), value)}
        changed = [Metric(key, value, now, number) for key, value in after.items()]
        for start in range(0, len(changed), 500):
            self.client.log_batch(self.run_id, metrics=changed[start : start + 500])
        noted = {**tags, NUMBER: str(number)} if changed else tags
        self.client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in noted.items()])

    @hold_signals(is_server)
    def describe_experiment(self, tags: Mapping[str, str]) -> None:
        """Set tags of the experiment, which its page is drawn from; a store that refuses them is none the worse."""
        with suppress(MlflowException):
            for key, value in tags.items():
                self.client.set_experiment_tag(self.experiment_id, key, value)


def open_parent_run(name: str, identity: str, *, note: str, any_version: bool = False) -> ParentRun:
    """Find the parent run of a comparison, or make it; one of another package version is refused.

    Of several with the same identity, as two shards make that start at the same moment, the earliest counts. So this
    may be called again later: what another shard made meanwhile is then found.
    """
    client, experiment_id = open_store(name)
    parents = _parents(client, experiment_id, name)
    others = {parent.data.tags.get("arelu_meta", "?") for parent in parents} - {__version__}
    if others and not any_version:
        raise InputError(
            f"the store holds comparison {name!r} made by arelu_meta {', '.join(sorted(others))}, this is "
            f"{__version__}; set MLFLOW_TRACKING_URI to another store, or go on in this one with `any_version`"
        )
    known = [parent for parent in parents if parent.data.tags[HASH] == identity]
    if known:
        return ParentRun(client, experiment_id, known[0].info.run_id)
    with hold_signals(is_server):
        tags = {NAME: name, HASH: identity, "arelu_meta": __version__, MLFLOW_RUN_NAME: name, MLFLOW_RUN_NOTE: note}
        made = client.create_run(experiment_id, tags=tags).info.run_id
        first = next(run for run in _parents(client, experiment_id, name) if run.data.tags[HASH] == identity)
        if first.info.run_id != made:
            client.delete_run(made)
    return ParentRun(client, experiment_id, first.info.run_id)


def open_judgement(experiment: str, identity: str, *, name: str) -> ParentRun:
    """Find the run that holds a judgement, or make it, in an experiment that is made where it is missing."""
    client, experiment_id = open_store(experiment)
    known = client.search_runs([experiment_id], f"tags.{JUDGEMENT} = '{identity}'", max_results=1)
    tags = {JUDGEMENT: identity, "arelu_meta": __version__, PROCESS: process_name(), MLFLOW_RUN_NAME: name}
    run = known[0] if known else client.create_run(experiment_id, tags=tags, run_name=name)
    return ParentRun(client, experiment_id, str(run.info.run_id))


def latest_parent_run(name: str, budget: float = 1.0) -> ParentRun:
    """Find the parent run that was started last, among those of a budget."""
    if not experiment_exists(name):
        raise InputError(f"the store holds no comparison {name!r}; run python -m arelu_meta.compare {name}")
    client, experiment_id = open_store(name)
    parents = _parents(client, experiment_id, name)
    of_budget = [parent for parent in parents if parent.data.tags.get(BUDGET) == f"{budget:g}"]
    if not of_budget:
        others = sorted({parent.data.tags.get(BUDGET, "?") for parent in parents})
        known = f"; it has it with budget {', '.join(others)}" if others else ""
        raise InputError(f"the store holds no comparison {name!r} with budget {budget:g}{known}")
    last = max(of_budget, key=lambda parent: float(parent.data.tags.get(STARTED, "0")))
    return ParentRun(client, experiment_id, last.info.run_id)


def coordinates(run: Run) -> dict[str, Any]:
    """Give a run's values on the axes of the grid, and its seed."""
    values: dict[str, Any] = json.loads(run.data.tags[CELL])
    return values


def ended_runs(client: MlflowClient, experiment_id: str, condition: str) -> list[Run]:
    """Runs with a result, one of each cell: the one that finished first, else the one that diverged first.

    Every part that asks whether a cell is done asks here, so that of two runs of one cell all choose the same.
    """
    one_each: dict[str, Run] = {}
    for ended in ("attributes.status = 'FINISHED'", f"attributes.status = 'FAILED' AND tags.{DIVERGED} != ''"):
        with no_garbage_collection():
            runs = client.search_runs([experiment_id], f"{condition} AND {ended}", max_results=_MOST_RUNS)
        for run in sorted(runs, key=lambda run: (run.info.end_time, run.info.run_id)):
            one_each.setdefault(run.data.tags.get("spec_hash", run.info.run_id), run)
    return list(one_each.values())


def _equal(before: float | None, value: float) -> bool:
    return before is not None and (before == value or (math.isnan(before) and math.isnan(value)))


def _parents(client: MlflowClient, experiment_id: str, name: str) -> list[Run]:
    """All parent runs of this name, the earliest first."""
    parents = f"tags.{NAME} = '{name}' AND tags.`{HASH}` != ''"  # their cells have none
    runs = client.search_runs([experiment_id], parents, max_results=_MOST_RUNS)
    return sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))
