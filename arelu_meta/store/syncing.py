"""Copy what an MLflow store holds to another: what is there already, by its identity, is left as it is.

python -m arelu_meta.store sync mlflow.db http://server:5000

A run is known by the id that it has where it was made: copies carry it as a tag, through any number of stores. So a
sync that was interrupted goes on where it was, a second one does nothing, and one in the other direction brings new
runs only.
"""

import hashlib
import shutil
import uuid
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.entities import Experiment, LifecycleStage, LoggedModel, Run, ViewType
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from arelu_meta.console.progress import Bar, silent
from arelu_meta.data.files import cache_folder
from arelu_meta.errors import InputError, RunError, first_line, unknown, without_password
from arelu_meta.store.addresses import connect, full_address, place_of, same_store, sqlite_path
from arelu_meta.store.connection import STORE_ERRORS, check_reachable, quiet
from arelu_meta.store.copied_models import ORIGIN, ModelCopies, model_pages
from arelu_meta.store.copied_runs import Copied, RunCopies, origin_of
from arelu_meta.store.copied_versions import VersionCopies
from arelu_meta.store.histories import AT_ONCE, no_garbage_collection, run_pages

BROUGHT = "sync.tags"
"""Tag of an experiment: checksums of the tags that were copied, by which one that was changed since is known."""
IDS_IN_A_QUERY = 200
LONGEST = 400  # characters of a message
MOST = 50_000  # experiments, as many as MLflow gives at once


@dataclass
class Synced:
    """What a sync found and did.

    Attributes:
        copied: what was sent
        unchanged: runs of which the target has all
        there: runs that were made in the target, came there from another store, or were deleted there
        models: models that were copied
        versions: registered versions that were copied
        notes: what was left as it is, a line each
        failed: what could not be copied, a line each
    """

    copied: Copied = field(default_factory=Copied)
    unchanged: int = 0
    there: int = 0
    models: int = 0
    versions: int = 0
    notes: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        values = asdict(self)
        return {**values.pop("copied"), **values}


def sync(
    source: str, target: str, *, experiments: Sequence[str] = (), dry_run: bool = False, bar: Bar = silent
) -> Synced:
    """Copy the experiments of a store to another, with runs, models and artifacts.

    Args:
        source: Address of the store to copy, or path of its SQLite file.
        target: Address of the store that takes it; an SQLite file is made where there is none.
        experiments: Names of those to copy; all unless given.
        dry_run: Count the runs to copy, and write nothing.
        bar: Shows progress.

    Returns:
        What was copied, and what was not.

    Raises:
        InputError: An address is wrong, both are the same store, or an experiment is not there.
        RunError: Another process copies to the target, or a store went away.
    """
    source, target = full_address(source), full_address(target)
    if same_store(source, target):
        raise InputError(f"{without_password(source)} is to be copied to itself; name another store")
    with _locked(target) as place, quiet():
        client = connect(source, create=False)
        selected = _selected(client, experiments)
        path = sqlite_path(target)
        if dry_run and path is not None and not path.exists():
            with no_garbage_collection():
                ids = [one.experiment_id for one in selected]
                return Synced(Copied(runs=sum(1 for _ in run_pages(client, ids, view=ViewType.ALL))))
        try:
            copying = _Sync(client, connect(target, create=True), selected, place)
            return copying.run(whole=not experiments, dry_run=dry_run, bar=bar)
        except STORE_ERRORS as error:
            raise RunError(f"{without_password(first_line(error))}; the same command goes on later") from error


@contextmanager
def _locked(target: str) -> Iterator[Path]:
    """Keep other processes of this machine from copying to the same store; gives a folder, empty at first."""
    name = hashlib.sha256(repr(place_of(target)).encode()).hexdigest()[:16]
    place = cache_folder() / "sync" / name
    place.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(place.with_suffix(".lock"), timeout=0):
            shutil.rmtree(place, ignore_errors=True)  # of a process that was killed
            try:
                yield place
            finally:
                shutil.rmtree(place, ignore_errors=True)
    except Timeout:
        raise RunError(f"another process copies to {without_password(target)}; wait until it has ended") from None


def _selected(client: MlflowClient, names: Sequence[str]) -> list[Experiment]:
    stored = {one.name: one for one in client.search_experiments(max_results=MOST)}
    for name in names:
        if name not in stored:
            raise unknown("experiment", name, stored)
    return [one for name, one in stored.items() if name in names or not names]


class _Sync:
    """One sync, from the experiments of a store to another."""

    def __init__(
        self, source: MlflowClient, target: MlflowClient, experiments: Sequence[Experiment], place: Path
    ) -> None:
        self.source, self.target, self.experiments = source, target, experiments
        self.models = ModelCopies(source, target, place)
        self.runs = RunCopies(source, target, self.models, place)
        self.found = Synced(self.runs.copied)
        self._known = {one.name: one for one in target.search_experiments(ViewType.ALL, max_results=MOST)}
        self._ids: dict[str, str] = {}  # of the target's experiments, by those of the source

    def run(self, *, whole: bool, dry_run: bool, bar: Bar) -> Synced:
        """Look for what is missing, and copy it."""
        with no_garbage_collection():
            runs = self._find_runs()
            by_id = {run.info.run_id: run for run in runs}
            models = list(model_pages(self.source, [one.experiment_id for one in self.experiments]))
            self.models.find([one.experiment_id for one in self._known.values()])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            of_run: dict[str | None, list[LoggedModel]] = {}
            for model in models:
                of_run.setdefault(model.source_run_id, []).append(model)
            here = [run for run in runs if not self.runs.comes_from_elsewhere(run)]

            def is_missing(run: Run) -> bool:
                try:
                    return not self.runs.is_complete(run, self._parent(run, by_id), of_run.get(run.info.run_id, ()))
                except STORE_ERRORS:  # artifacts that cannot be listed: said when they are copied
                    return True

            missing = [run for run, is_new in zip(here, pool.map(is_missing, here), strict=True) if is_new]
            self.found.there, self.found.unchanged = len(runs) - len(here), len(here) - len(missing)
            if dry_run:
                begun = sum(origin_of(run) in self.runs.copies for run in missing)
                self.found.copied.runs, self.found.copied.updated = len(missing) - begun, begun
                return self.found
            for experiment in self.experiments:
                self._copy_experiment(experiment)
            with bar("runs", len(missing)) as advance:
                for run in missing:
                    with self._going_on(f"run {run.info.run_id}"):
                        parent, own = self._parent(run, by_id), of_run.get(run.info.run_id, ())
                        self.runs.copy(run, self._ids[run.info.experiment_id], parent, own, pool)
                    advance(run.info.run_name or run.info.run_id)
            for model in models:
                if model.source_run_id not in by_id:  # no run made it, or one that is gone
                    with self._going_on(f"model {model.model_id}"):
                        self.found.copied.add_files(self.models.copy(model, self._ids[model.experiment_id], None))
            self._copy_versions(models, runs, whole=whole)
        self.found.models = self.models.made
        return self.found

    def _find_runs(self) -> list[Run]:
        """Runs of the source, those above others first, then the oldest; and what the target has of them."""
        ids = [one.experiment_id for one in self.experiments]
        runs = list(run_pages(self.source, ids, view=ViewType.ALL))
        by_id = {run.info.run_id: run for run in runs}

        def depth(run: Run | None, most: int = 20) -> int:
            above = run and by_id.get(run.data.tags.get(MLFLOW_PARENT_RUN_ID, ""))
            return 1 + depth(above, most - 1) if above and most else 0

        everywhere = [one.experiment_id for one in self._known.values()]
        copies = run_pages(self.target, everywhere, f"tags.`{ORIGIN}` LIKE '%'", view=ViewType.ALL)
        self.runs.copies = {origin_of(run): run for run in copies}
        origins = [origin_of(run) for run in runs]
        for start in range(0, len(origins), IDS_IN_A_QUERY):
            listed = ", ".join(f"'{one}'" for one in origins[start : start + IDS_IN_A_QUERY])
            made = run_pages(self.target, everywhere, f"attributes.run_id IN ({listed})", view=ViewType.ALL)
            self.runs.made_there |= {run.info.run_id for run in made}
        return sorted(runs, key=lambda run: (depth(run), run.info.start_time or 0))

    def _parent(self, run: Run, by_id: dict[str, Run]) -> str | None:
        """The run of the target that a run is below; None where the target does not have it."""
        above = by_id.get(run.data.tags.get(MLFLOW_PARENT_RUN_ID, ""))
        return None if above is None else self.runs.id_of(above)

    def _copy_experiment(self, experiment: Experiment) -> None:
        """Make the experiment of the same name where it is missing; bring tags that nobody has changed there."""
        there = self._known.get(experiment.name)
        if there is not None and there.lifecycle_stage == LifecycleStage.DELETED:
            raise InputError(
                f"experiment {experiment.name!r} was deleted in {without_password(self.target.tracking_uri)}; restore "
                f"it with mlflow experiments restore --experiment-id {there.experiment_id}, or choose `experiment`"
            )
        if there is None:
            path = sqlite_path(self.target.tracking_uri)
            # MLflow's own choice would be in the working folder of this process.
            place = None if path is None else (path.resolve().parent / "mlruns" / uuid.uuid4().hex).as_uri()
            there = self.target.get_experiment(self.target.create_experiment(experiment.name, place))
        self._ids[experiment.experiment_id] = there.experiment_id
        sums = dict(pair.split("=", 1) for pair in there.tags.get(BROUGHT, "").split() if "=" in pair)
        brought = {}
        for number, (key, value) in enumerate(sorted(experiment.tags.items())):
            now, known = there.tags.get(key), f"{zlib.crc32(key.encode()):08x}"
            if key == BROUGHT:
                continue
            if now is None or (now != value and sums.get(known) == f"{zlib.crc32(now.encode()):08x}"):
                self.target.set_experiment_tag(there.experiment_id, key, value)
                now = value
            if now == value and number < 200:  # the checksums are one tag, whose length is bounded
                brought[known] = f"{zlib.crc32(value.encode()):08x}"
        if brought and brought != sums:
            listed = " ".join(f"{key}={value}" for key, value in sorted(brought.items()))
            self.target.set_experiment_tag(there.experiment_id, BROUGHT, listed)

    def _copy_versions(self, models: Sequence[LoggedModel], runs: Sequence[Run], *, whole: bool) -> None:
        """Copy what is registered of the models."""
        of_models = {model.model_id: found for model in models if (found := self.models.id_of(model)) is not None}
        of_runs = {run.info.run_id: run_id for run in runs if (run_id := self.runs.id_of(run)) is not None}
        versions = VersionCopies(self.source, self.target)
        with self._going_on("the registered models"):
            versions.copy_all(of_models, of_runs, whole=whole)
        self.found.versions, self.found.notes = versions.made, versions.left

    @contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """Note what could not be copied, and go on; where a store is away, stop."""
        try:
            yield
        except STORE_ERRORS as error:
            for client in (self.source, self.target):
                try:
                    check_reachable(client.tracking_uri, seconds=0.0)
                except ConnectionError as away:
                    raise RunError(f"{without_password(first_line(away))}; the same command goes on later") from error
            reason = " ".join(str(error).split())[:LONGEST]  # MLflow names the file in a line of its own
            self.found.failed.append(without_password(f"{what}: {reason}"))
