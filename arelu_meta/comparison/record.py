"""A comparison in MLflow: an experiment of its name, a parent run, the cells' runs nested below it."""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Run, RunTag
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME, MLFLOW_RUN_NOTE

from arelu_meta import __version__
from arelu_meta.comparison.grid import Cell
from arelu_meta.comparison.selection import written
from arelu_meta.errors import InputError
from arelu_meta.runtime.signals import hold_signals
from arelu_meta.store.connection import experiment_exists, has_diverged, open_store

NAME, HASH, PLACE, CALLED = "comparison", "comparison.hash", "comparison.cell", "comparison.called"
AXIS, BUDGET = "axis.", "budget"
REPORT = "report"
PAGE = 1000


@dataclass(frozen=True)
class Record:
    """The parent run of a comparison."""

    client: MlflowClient
    experiment_id: str
    run_id: str

    def tags_for(self, cell: Cell, name: str) -> dict[str, str]:
        """Tags that put a cell's run below this one."""
        return {MLFLOW_PARENT_RUN_ID: self.run_id, NAME: name, PLACE: cell.place}

    def finished_cells(self) -> list[Run]:
        """All runs of cells below this one that have a result, in the order of the file, whichever was done first."""
        below = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{self.run_id}'"
        tags = self.client.get_run(self.run_id).data.tags

        def order(run: Run) -> list[int]:
            *axes, seed = place(run).items()
            levels = [(written(value), tags.get(f"{AXIS}{axis}", "").split(", ")) for axis, value in axes]
            return [*(known.index(value) if value in known else len(known) for value, known in levels), seed[1]]

        return sorted(_ended(self.client, self.experiment_id, below), key=order)

    @hold_signals()
    def take_finished(self, cells: Iterable[Cell], name: str) -> dict[str, str]:
        """Find the cells that have a result, by identity, and put them below this run.

        One that was run for another edition of the file is the same run, and moves here.
        """
        wanted = {cell.spec.identity: cell for cell in cells}
        found: dict[str, str] = {}
        for run in _ended(self.client, self.experiment_id, f"tags.{NAME} = '{name}'"):
            tags = run.data.tags
            cell = wanted.get(tags.get("spec_hash", ""))
            if cell is None:
                continue
            found[cell.spec.identity] = run.info.run_id
            for tag, value in self.tags_for(cell, name).items():
                if tags.get(tag) != value:
                    self.client.set_tag(run.info.run_id, tag, value)
        return found

    @hold_signals()
    def begin(self, tags: Mapping[str, str]) -> None:
        """Show it as running, with what the file says of it now."""
        self.client.update_run(self.run_id, status="RUNNING")
        self._tag({**tags, CALLED: f"{time.time():.3f}"})

    @hold_signals()
    def end(self, status: str) -> None:
        """Close it as FINISHED, FAILED or KILLED."""
        self.client.set_terminated(self.run_id, status=status)

    @hold_signals()
    def write(self, files: Path, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Replace the report: its files as artifacts, its numbers as metrics where they have changed.

        MLflow keeps a metric for ever; one that the report no longer has becomes NaN.
        """
        self._remove_files_but(files)
        self.client.log_artifacts(self.run_id, str(files), REPORT)
        before = self.client.get_run(self.run_id).data.metrics
        gone = {key: math.nan for key, value in before.items() if key not in metrics and not math.isnan(value)}
        now = int(time.time() * 1000)
        changed = [Metric(key, value, now, 0) for key, value in {**metrics, **gone}.items() if before.get(key) != value]
        for start in range(0, len(changed), 500):
            self.client.log_batch(self.run_id, metrics=changed[start : start + 500])
        self._tag(tags)

    def _tag(self, tags: Mapping[str, str]) -> None:
        self.client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def _remove_files_but(self, files: Path) -> None:
        """Remove what an earlier report has and this one has not, such as figures under other names."""
        kept = {f"{REPORT}/{path.relative_to(files).as_posix()}" for path in files.rglob("*")}
        old = [path for path in self._artifacts(REPORT) if path not in kept]
        if old:
            repository = get_artifact_repository(self.client.get_run(self.run_id).info.artifact_uri)
            for path in old:
                repository.delete_artifacts(path)

    def _artifacts(self, folder: str) -> Iterator[str]:
        for entry in self.client.list_artifacts(self.run_id, folder):
            if entry.is_dir:
                yield from self._artifacts(entry.path)
            else:
                yield str(entry.path)


def open_record(name: str, identity: str, *, note: str, any_version: bool = False) -> Record:
    """Find the parent run of a comparison, or make it; one of another package version stands in the way."""
    client, experiment_id = open_store(name)
    parents = _parents(client, experiment_id, name)
    others = {parent.data.tags.get("arelu_meta", "?") for parent in parents} - {__version__}
    if others and not any_version:
        raise InputError(
            f"the store holds comparison {name!r} made by arelu_meta {', '.join(sorted(others))}, this is "
            f"{__version__}; set MLFLOW_TRACKING_URI to another store, or go on in this one with --any-version"
        )
    for parent in parents:
        if parent.data.tags.get(HASH) == identity:
            return Record(client, experiment_id, parent.info.run_id)
    with hold_signals():
        tags = {NAME: name, HASH: identity, "arelu_meta": __version__, MLFLOW_RUN_NAME: name, MLFLOW_RUN_NOTE: note}
        run = client.create_run(experiment_id, tags=tags)
    return Record(client, experiment_id, run.info.run_id)


def latest_record(name: str, budget: float = 1.0) -> Record:
    """Find the parent run that was at work last, among those of a budget."""
    if not experiment_exists(name):
        raise InputError(f"the store holds no comparison {name!r}; run python -m arelu_meta.compare {name}")
    client, experiment_id = open_store(name)
    parents = _parents(client, experiment_id, name)
    of_budget = [parent for parent in parents if parent.data.tags.get(BUDGET) == f"{budget:g}"]
    if not of_budget:
        others = sorted({parent.data.tags.get(BUDGET, "?") for parent in parents})
        known = f"; it has it with budget {', '.join(others)}" if others else ""
        raise InputError(f"the store holds no comparison {name!r} with budget {budget:g}{known}")
    last = max(of_budget, key=lambda parent: float(parent.data.tags.get(CALLED, "0")))
    return Record(client, experiment_id, last.info.run_id)


def place(run: Run) -> dict[str, Any]:
    """Where a run lies in the grid: value by axis, and the seed."""
    found: dict[str, Any] = json.loads(run.data.tags[PLACE])
    return found


def _parents(client: MlflowClient, experiment_id: str, name: str) -> list[Run]:
    """Newest first."""
    runs = _search(client, experiment_id, f"tags.{NAME} = '{name}'")
    return [run for run in runs if HASH in run.data.tags]


def _ended(client: MlflowClient, experiment_id: str, condition: str) -> list[Run]:
    """Runs that need not be done again, one of each cell: what finished first, else what diverged."""
    finished = _search(client, experiment_id, f"{condition} AND attributes.status = 'FINISHED'")
    failed = _search(client, experiment_id, f"{condition} AND attributes.status = 'FAILED'")
    one_each: dict[str, Run] = {}
    for run in (*sorted(finished, key=lambda run: run.info.end_time), *filter(has_diverged, failed)):
        one_each.setdefault(run.data.tags.get("spec_hash", run.info.run_id), run)
    return list(one_each.values())


def _search(client: MlflowClient, experiment_id: str, condition: str) -> list[Run]:
    found: list[Run] = []
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], condition, max_results=PAGE, page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return found
