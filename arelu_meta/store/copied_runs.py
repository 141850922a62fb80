"""Runs, copied from one MLflow store to another: parameters, tags, points, data sets, models, artifacts, times, status.

A copy carries tags that say what it is of, and one, written last, that says what of it was copied: a copy without that
is gone on with, and one whose run has changed since is brought up to date. Nothing is sent that is there already.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import (
    LifecycleStage,
    LoggedModel,
    LoggedModelInput,
    LoggedModelOutput,
    Metric,
    Param,
    Run,
    RunStatus,
    RunTag,
)
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from arelu_meta.errors import without_password
from arelu_meta.runtime.machine import process_name
from arelu_meta.store.connection import run_status
from arelu_meta.store.copied_files import Sizes, artifacts_at, copy_files, file_sizes
from arelu_meta.store.copied_models import ORIGIN, ModelCopies, point
from arelu_meta.store.sending import BATCH, PROCESS, no_address_printed

# Tags of a copy: the run that it was copied from, the store of that, and a digest of what that was then.
SOURCE, STORE, STATE = "sync.source", "sync.store", "sync.state"
AT_ONCE = 100  # parameters or tags in a request
T = TypeVar("T")


def origin_of(run: Run) -> str:
    """The id that the run has in the store where it was made."""
    return str(run.data.tags.get(ORIGIN, run.info.run_id))


def is_deleted(run: Run) -> bool:
    """Tell whether a run is in the trash of its store."""
    return bool(run.info.lifecycle_stage == LifecycleStage.DELETED)


def has_ended(run: Run) -> bool:
    """Tell whether nothing more is expected of a run."""
    return bool(RunStatus.is_terminated(RunStatus.from_string(run.info.status)))


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@dataclass
class Copied:
    """What was sent: runs that are new there, runs that were gone on with or changed, points, files and their size."""

    runs: int = 0
    updated: int = 0
    points: int = 0
    files: int = 0
    bytes: int = 0

    def add_files(self, sizes: Sizes) -> None:
        """Count files."""
        self.files += len(sizes)
        self.bytes += sum(sizes.values())


class RunCopies:
    """The runs of one store, and their copies in another.

    Attributes:
        copies: the copy of each run, by `origin_of`
        made_there: ids of runs that the target has not as copies
        copied: what was sent
    """

    def __init__(self, source: MlflowClient, target: MlflowClient, models: ModelCopies, place: Path) -> None:
        self.source, self.target, self.models, self._place = source, target, models, place
        self.copies: dict[str, Run] = {}
        self.made_there: set[str] = set()
        self.copied = Copied()
        self._ids: dict[str, str] = {}  # of the copies, by the ids in the source

    def files_of(self, run: Run) -> Sizes:
        """Sizes of a run's artifacts."""
        return file_sizes(artifacts_at(self.source, run.info.artifact_uri))

    def id_of(self, run: Run) -> str | None:
        """Where the target has the run; None where it has not."""
        origin = origin_of(run)
        if origin in self.made_there:
            return origin
        if run.info.run_id in self._ids:
            return self._ids[run.info.run_id]
        return str(self.copies[origin].info.run_id) if origin in self.copies else None

    def comes_from_elsewhere(self, run: Run) -> bool:
        """Tell whether the run was made in the target, came there from another store, or was deleted there."""
        if origin_of(run) in self.made_there:
            return True
        copy = self.copies.get(origin_of(run))
        if copy is None or STATE not in copy.data.tags:
            return False
        return copy.data.tags.get(SOURCE) != run.info.run_id or (is_deleted(copy) and not is_deleted(run))

    def is_complete(self, run: Run, parent: str | None, models: Sequence[LoggedModel]) -> bool:
        """Tell whether the target has all of a run."""
        copy = self.copies.get(origin_of(run))
        if copy is None or STATE not in copy.data.tags or not has_ended(run) or is_deleted(copy) != is_deleted(run):
            return False
        return bool(copy.data.tags[STATE] == self.state(run, parent, models, self.files_of(run)))

    def state(self, run: Run, parent: str | None, models: Sequence[LoggedModel], files: Mapping[str, int]) -> str:
        """Digest of all that may change of a run that has ended."""
        described = [(model.model_id, str(model.status), model.tags, len(model.metrics or ())) for model in models]
        info = [run.info.run_name, run.info.status, run.info.start_time, run.info.end_time, run.info.lifecycle_stage]
        data = [run.data.params, run.data.tags, {key: repr(value) for key, value in run.data.metrics.items()}]
        content = json.dumps([info, data, parent, sorted(described), files], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    def copy(
        self, run: Run, experiment_id: str, parent: str | None, models: Sequence[LoggedModel], pool: Executor
    ) -> None:
        """Copy a run, or what its copy does not have yet.

        Args:
            run: of the source
            experiment_id: the experiment of the target that takes it
            parent: the run of the target that it is below
            models: what it stored
            pool: threads that read points
        """
        state, tags = self.state(run, parent, models, self.files_of(run)), self._tags(run, parent)
        before = self.copies.get(origin_of(run))
        run_id = self._begin(run, experiment_id, before)
        for params in _batches([Param(key, value) for key, value in run.data.params.items()], AT_ONCE):
            self.target.log_batch(run_id, params=params)
        for some in _batches([RunTag(key, value) for key, value in tags.items() if key != PROCESS], AT_ONCE):
            self.target.log_batch(run_id, tags=some)
        there = self.target.get_run(run_id)
        self._copy_inputs(run, there)
        for model in models:
            self.copied.add_files(self.models.copy(model, experiment_id, run_id))
        self._copy_outputs(run, there, models)
        self._copy_points(run, there, models, pool)
        source, target = (
            artifacts_at(client, one.info.artifact_uri) for client, one in ((self.source, run), (self.target, there))
        )
        self.copied.add_files(copy_files(source, target, self._place / run_id))
        self._end(run, run_id, tags.get(PROCESS), state)

    def _tags(self, run: Run, parent: str | None) -> dict[str, str]:
        store = without_password(self.source.tracking_uri)
        own = {key: value for key, value in run.data.tags.items() if key != STATE}
        if parent is not None:
            own[MLFLOW_PARENT_RUN_ID] = parent
        return {**own, ORIGIN: origin_of(run), SOURCE: run.info.run_id, STORE: store}

    def _begin(self, run: Run, experiment_id: str, copy: Run | None) -> str:
        """Make the copy, whose tags are there with it; or take up the one that is there."""
        if copy is None:
            # Until it is complete it is this process's: should that be killed, `close_stale` sees it.
            tags = {ORIGIN: origin_of(run), PROCESS: process_name()}
            made = self.target.create_run(experiment_id, run.info.start_time, tags, run.info.run_name)
            self._ids[run.info.run_id] = str(made.info.run_id)
            self.copied.runs += 1
            return str(made.info.run_id)
        if is_deleted(copy):
            self.target.restore_run(copy.info.run_id)
        self.copied.updated += 1
        return str(copy.info.run_id)

    def _copy_inputs(self, run: Run, there: Run) -> None:
        """Copy data sets, and links to models that the run was given."""
        whole = self.source.get_run(run.info.run_id)
        if whole.inputs is None or there.inputs is None:
            return
        known = {(one.dataset.name, one.dataset.digest) for one in there.inputs.dataset_inputs}
        datasets = [one for one in whole.inputs.dataset_inputs if (one.dataset.name, one.dataset.digest) not in known]
        given = {one.model_id for one in whole.inputs.model_inputs}
        models = [self.models.id_of(self.source.get_logged_model(model_id)) for model_id in sorted(given)]
        given_there = {one.model_id for one in there.inputs.model_inputs}
        new = [LoggedModelInput(model_id) for model_id in models if model_id and model_id not in given_there]
        if datasets or new:
            self.target.log_inputs(there.info.run_id, datasets, new)

    def _copy_outputs(self, run: Run, there: Run, models: Sequence[LoggedModel]) -> None:
        """Link the run to the models that it stored, at their steps."""
        outputs: Any = self.source.get_run(run.info.run_id).outputs
        steps = {one.model_id: one.step for one in outputs.model_outputs} if outputs else {}
        known = {one.model_id for one in there.outputs.model_outputs} if there.outputs else set()
        pairs = [(self.models.id_of(model), steps[model.model_id]) for model in models if model.model_id in steps]
        new = [LoggedModelOutput(model_id, step) for model_id, step in pairs if model_id and model_id not in known]
        if new:
            self.target.log_outputs(there.info.run_id, new)

    def _copy_points(self, run: Run, there: Run, models: Sequence[LoggedModel], pool: Executor) -> None:
        """Copy the points that are not there; those that belong to a model are sent with it, once."""
        keys = list(run.data.metrics)

        def read(client: MlflowClient, run_id: str, keys: list[str]) -> list[Metric]:
            histories = pool.map(lambda key: client.get_metric_history(run_id, key), keys)
            return [metric for history in histories for metric in history]

        known = {point(one) for one in read(self.target, there.info.run_id, [*there.data.metrics])}
        linked = self.models.missing_links(models, run.info.run_id, there.info.run_id)
        known |= {point(one) for one in linked}
        missing = [one for one in read(self.source, run.info.run_id, keys) if point(one) not in known]
        plain = [Metric(one.key, one.value, one.timestamp, one.step) for one in missing]
        for batch in _batches([*plain, *linked], BATCH):
            self.target.log_batch(there.info.run_id, metrics=batch)
        self.copied.points += len(plain) + len(linked)

    def _end(self, run: Run, run_id: str, process: str | None, state: str) -> None:
        """Give the copy the status and end of the run; last, note that it is complete."""
        with no_address_printed():
            if has_ended(run):
                self.target.set_terminated(run_id, run.info.status, run.info.end_time)
            elif run_status(self.target, run_id) != run.info.status:
                self.target.update_run(run_id, run.info.status)
        if process is not None:
            self.target.set_tag(run_id, PROCESS, process)
        elif PROCESS in self.target.get_run(run_id).data.tags:
            self.target.delete_tag(run_id, PROCESS)
        self.target.set_tag(run_id, STATE, state)
        if is_deleted(run):
            self.target.delete_run(run_id)
